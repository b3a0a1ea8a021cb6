"""A large installer into an object storage and back, in this process: what does it cost, and how much memory?

The storage is moto's server, in a process of its own: the seconds are its own more than ours.

python -m tests.bench.objects [MiB]
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from tests.bench.transfer import MIB, make_installer
from tests.objects import BUCKET, ObjectServer
from tests.ports import free_port
from upload_service.installers_s3 import ObjectInstallers
from upload_service.model import Upload
from upload_service.settings import StorageSettings

READERS = 50


@contextmanager
def serving() -> Iterator[ObjectServer]:
    """A server of objects beside this process, with a bucket."""
    server = ObjectServer(free_port())
    command = (sys.executable, "-m", "moto.server", "-p", str(server.port))
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urlopen(Request(f"{server.endpoint}/{BUCKET}", method="PUT")).close()  # noqa: S310
                break
            except URLError:
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()


def memory(line: str = "VmRSS") -> int:
    """Bytes of memory this process holds, or ever held (`VmHWM`)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{line}:")[2].split()[0]) * 1024


async def read(home: ObjectInstallers, upload: Upload) -> str:
    """The SHA-256 of what is read."""
    digest = hashlib.sha256()
    async for block in home.read(upload, 0, upload.size):
        await asyncio.to_thread(digest.update, block)
    return digest.hexdigest()


async def main(size: int) -> bool:
    """Measure `size` MiB; whether what came back was what was put."""
    table = Table("Step", "Seconds", "CPU s/GiB", "Memory above the start, MiB")

    async def measured(label: str, amount: int, work: Awaitable[Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins again
        before, begun, used = memory(), time.monotonic(), time.process_time()
        result = await work
        spent, cpu = time.monotonic() - begun, (time.process_time() - used) * 1024 / amount
        table.add_row(label, f"{spent:.1f}", f"{cpu:.2f}", f"{(memory('VmHWM') - before) / MIB:.0f}")
        return result

    with TemporaryDirectory(prefix="pkgrepo-") as name, serving() as server:
        source = Path(name) / "installer"
        expected = make_installer(source, size)
        storage = StorageSettings(**server.settings("bench")).object_storage
        assert storage is not None
        home, upload_id = ObjectInstallers(storage), uuid4().hex
        upload = Upload("bench", "f", upload_id, 0, server_filename=upload_id, size=size * MIB)
        small = Upload("bench", "f", "small", 0, server_filename=uuid4().hex, size=min(size, 16) * MIB)
        os.truncate(source, size * MIB)
        await home.size(upload)
        await measured("put", size, home.put(upload, source))
        same: bool = await measured("read", size, read(home, upload)) == expected
        os.truncate(source, small.size)
        await home.put(small, source)
        many = asyncio.gather(*(read(home, small) for _ in range(READERS)))
        await measured(f"{READERS} reads of {small.size // MIB} MiB at once", READERS * small.size // MIB, many)
    console = Console()
    console.print(f"{size} MiB, SHA-256 {'equal' if same else 'DIFFERENT'}")
    console.print(table)
    return same


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)) else 1)
