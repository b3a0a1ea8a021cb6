"""Runs a server on a folder of its own: one owner at a time, with a log, stopped at the end. POSIX only.

The folder contains `data`, the server's working directory; `lock`, locked by the process that runs the server;
`server.pid`, locked by the server itself; `server.log`, and `server.log.1` of the previous start.
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

START_TIMEOUT = 60.0  # seconds; a database that was killed replays its journal first
STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
POLL_INTERVAL = 0.02  # seconds


class NotStarted(Exception):
    """The server does not run; `reason` is a clause, `log` has the lines that the server wrote, if it ran."""

    def __init__(self, reason: str, log: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.log = reason, log


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
        raise NotStarted(f"runs on {folder} already, started by process {(folder / 'lock').read_text()}")
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
