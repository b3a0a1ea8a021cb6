"""An upload_service with a disk of a few MiB.

`python -m tests.support.services.small_disk DATABASE BYTES` runs it.

The disk is a tmpfs in a mount namespace of the process. If namespaces are forbidden, writes fail as on a full disk.
"""

import asyncio
import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from aiohttp import ClientError, ClientSession

from common.events import Event, LocalEvents
from common.http.server import serving, until_stopped
from common.settings import load
from tests.support.api import ServiceApi
from tests.support.factories import KEY
from tests.support.servers.ports import free_port
from tests.support.services.upload import DOWNLOAD_KEYS, UploadApi
from tests.support.wait import until
from upload_service.app import create_app
from upload_service.settings import UploadSettings

NAMESPACES = (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"])
MOUNT = 'mount -t tmpfs -o "size=$0" none "$1" && shift && exec "$@"'


@asynccontextmanager
async def small_disk(mongo_url: str, database: str, folder: Path, size: int) -> AsyncIterator[UploadApi]:
    """Run the service with a disk of `size` bytes at `folder`."""
    port = free_port()
    environment = {
        **os.environ,
        "INTERNAL_KEY": KEY,
        "DOWNLOAD_KEY": DOWNLOAD_KEYS.signing,
        "MONGO_URL": mongo_url,
        "INSTALLERS": str(folder),
        "LISTEN": f"127.0.0.1:{port}",
    }
    program = [sys.executable, "-m", __name__, database, str(size)]
    command = [*await _mount_command(folder, size), *program]
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        async with ClientSession() as session:
            api = UploadApi(ServiceApi(session, f"http://127.0.0.1:{port}", "upload_service"), folder)

            async def ready() -> bool:
                assert process.returncode is None
                try:
                    async with session.get(f"{api.service.address}/readyz") as answer:
                        return answer.status == 200
                except ClientError:
                    return False

            await until(ready, timeout=60)
            yield api
    finally:
        process.terminate()
        await process.wait()


async def _mount_command(folder: Path, size: int) -> Sequence[str]:
    """A command prefix that mounts the small disk. Empty if that is impossible."""
    for namespace in NAMESPACES if shutil.which("unshare") else ():
        command = [*namespace, "sh", "-c", MOUNT, str(size), str(folder)]
        attempt = await asyncio.create_subprocess_exec(*command, "true", stderr=asyncio.subprocess.DEVNULL)
        if await attempt.wait() == 0:
            return command
    return ()


def limit_writes(folder: Path, size: int) -> None:
    """Let writes fail as if the folder had only `size` bytes."""
    write = os.pwrite

    def limited_write(descriptor: int, data: bytes, offset: int) -> int:
        used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if used + len(data) > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    os.pwrite = limited_write  # type: ignore[assignment]


async def main(database: str, size: int) -> None:
    settings = load(UploadSettings, database=database)
    if not settings.installers.is_mount():
        limit_writes(settings.installers, size)
    events = LocalEvents()

    async def ignore(_: Event) -> None:
        return

    await events.subscribe("tests", "upload.finished", ignore)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(create_app(settings, events), settings.listen))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(until_stopped(main(sys.argv[1], int(sys.argv[2]))))
