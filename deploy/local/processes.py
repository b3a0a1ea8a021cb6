"""Run a server on a folder of its own: one owner at a time, nothing left over, its log kept, stopped in order.

In the folder lie `data`, where the server runs; `lock`, held by the process that runs it; `server.pid`, held by the
server itself; `server.log`, and `server.log.1` from the start before. POSIX only.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

START_LIMIT = 60.0  # seconds; a database that was killed reads its journal first
STOP_LIMIT = 10.0  # seconds between SIGTERM and SIGKILL
POLL = 0.02  # seconds between two looks at something that does not announce itself


class NotStarted(Exception):
    """The server does not run; `why` is a clause that says so, `log` holds the lines it wrote, if it ran."""

    def __init__(self, why: str, log: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.log = log


@asynccontextmanager
async def running(command: Sequence[str], folder: Path, ready: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `command` in `folder`/data, made where absent; the block begins when `ready()` returns.

    Raises NotStarted when a living process runs a server on the folder already, and when this server cannot be
    executed, ends before it is ready or is not ready within START_LIMIT.
    """
    async with AsyncExitStack() as stack:
        try:
            _make(folder)
            stack.enter_context(_own(folder))
            held = stack.enter_context(await _without_leftover(folder / "server.pid"))
            process = await _spawn(command, folder, held)
        except OSError as error:
            raise NotStarted(f"cannot be started: {error}") from error
        stack.push_async_callback(_stop, process)
        await _until_ready(process, ready(), folder / "server.log")
        yield


def _make(folder: Path) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # The servers' sockets lie here and ask for no password.


def _own(folder: Path) -> TextIO:
    lock = _take(folder / "lock")
    if lock is None:
        raise NotStarted(f"runs on {folder} already, for process {(folder / 'lock').read_text()}")
    _write(lock, str(os.getpid()))
    return lock


async def _without_leftover(path: Path) -> TextIO:
    """Lock the pid file for the next server, having ended the one that outlived its owner if there is one.

    Only a server started on this folder can hold this lock, and the pid in the file is the holder's: a pid that has
    passed to another process since is not signalled.
    """
    if held := _take(path):
        return held
    for kind in (signal.SIGTERM, signal.SIGKILL):
        _signal(path, kind)
        for _ in range(int(STOP_LIMIT / POLL)):
            await asyncio.sleep(POLL)
            if held := _take(path):
                return held
    raise NotStarted(f"still runs on {path.parent} for a process that is gone: end what has {path} open")


def _signal(path: Path, kind: signal.Signals) -> None:
    if pid := path.read_text():  # Empty if the owner was killed between starting the server and noting its pid.
        with suppress(ProcessLookupError):
            os.kill(int(pid), kind)


def _take(path: Path) -> TextIO | None:
    """The file, locked until we and all who inherit it have closed it; None when others hold it."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _write(held: TextIO, pid: str) -> None:
    held.truncate(0)
    held.write(pid)
    held.flush()


async def _spawn(command: Sequence[str], folder: Path, held: TextIO) -> Process:
    _write(held, "")
    with _new_log(folder / "server.log") as log:
        process = await asyncio.create_subprocess_exec(
            *_dying_with_us(),
            *command,
            cwd=folder / "data",
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            pass_fds=[held.fileno()],
            start_new_session=True,  # Ctrl-C in a terminal is for us: servers stop after those who use them.
        )
    _write(held, str(process.pid))
    return process


def _dying_with_us() -> Sequence[str]:
    """What to put before a command for Linux to end it when we are killed; elsewhere the next start ends it."""
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return (setpriv, "--pdeathsig", "TERM") if setpriv else ()


def _new_log(path: Path) -> TextIO:
    if path.exists():
        path.replace(path.with_name("server.log.1"))
    return path.open("w")


async def _until_ready(process: Process, ready: Awaitable[None], log: Path) -> None:
    attempt = asyncio.ensure_future(ready)
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({attempt, ended}, timeout=START_LIMIT, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise NotStarted(f"ended while starting, with status {ended.result()} (see {log})", _lines_of(log))
        if not attempt.done():
            raise NotStarted(f"was not ready within {START_LIMIT:.0f} seconds (see {log})", _lines_of(log))
        if error := attempt.exception():
            raise NotStarted(f"did not become ready: {error} (see {log})", _lines_of(log)) from error
    finally:
        attempt.cancel()
        ended.cancel()
        await asyncio.gather(attempt, ended, return_exceptions=True)


def _lines_of(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_LIMIT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
