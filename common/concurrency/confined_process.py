"""Starts confined processes, reads their output, and ends them."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from common.errors import Unavailable

CODE = Path(__file__).parents[2]  # The process inherits no path, so it needs the folder of our packages.
END_TIMEOUT = 2.0  # seconds that a killed process has to disappear


class ConfinedProcessFailed(Exception):
    """A confined process gave no output.

    `status` is its exit status, or the negative number of the signal that ended it. It is None for too long an output.
    """

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


async def run_confined(
    module: str, *arguments: str, stdin: BinaryIO | bytes, wall_time: float, output_limit: int
) -> bytes:
    """Run `python -m module` with nothing but its input, and return its output of at most `output_limit` bytes.

    The process is gone when this function returns, raises or is cancelled. Raises ConfinedProcessFailed, TimeoutError
    after `wall_time` seconds, or Unavailable if this machine can start no process now.
    """
    process = await _start(module, arguments, PIPE if isinstance(stdin, bytes) else stdin)
    try:
        async with asyncio.timeout(wall_time):
            if isinstance(stdin, bytes):
                await _send(process, stdin)
            output = await _read(process, output_limit)
            status = await process.wait()
    finally:
        await _end(process)
    if status:
        raise ConfinedProcessFailed(status)
    return output


async def _start(module: str, arguments: tuple[str, ...], stdin: BinaryIO | int) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-s", "-P", "-m", module, *arguments),
            stdin=stdin,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd="/",
            env={"PYTHONPATH": str(CODE)},
            start_new_session=True,
        )
    except OSError as error:  # such as EAGAIN, ENOMEM or EMFILE
        raise Unavailable(f"No process can be started: {error.strerror}.") from None


async def _send(process: asyncio.subprocess.Process, content: bytes) -> None:
    """Write the whole input. A process that ended before it read everything tells the reason by its status."""
    assert process.stdin is not None  # noqa: S101  by how it was started
    with suppress(ConnectionError):
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: asyncio.subprocess.Process, limit: int) -> bytes:
    """Read the whole output. Raises ConfinedProcessFailed if it is longer than `limit` bytes."""
    assert process.stdout is not None  # noqa: S101  by how it was started
    try:
        await process.stdout.readexactly(limit + 1)
    except asyncio.IncompleteReadError as output:
        return output.partial
    raise ConfinedProcessFailed(None)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process, and the processes that it started, if it still runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT):
            await process.communicate()  # `wait` alone would wait for output that nobody reads.
