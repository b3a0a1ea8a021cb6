"""The process that reads one installer: started with nothing but the file, heard out, and ended."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import orjson

from common.errors import Unavailable
from upload_service.inspection.findings import Findings
from upload_service.inspection.signatures import LONGEST, may_be_an_installer
from upload_service.inspection.statuses import DAMAGED, OUT_OF_MEMORY

PATIENCE = 20.0  # seconds, of which the process itself may work for 10
END_PATIENCE = 2.0  # seconds for what was killed to be gone
ANSWER_LIMIT = 1 << 18  # bytes
CODE = Path(__file__).parents[2]  # where Python finds this package, in a process that inherits nothing


class Reason(StrEnum):
    """Why an inspection failed."""

    DAMAGED = "damaged"  # It is not what its first bytes say.
    TOO_LONG = "too_long"  # Reading it takes more time than it may.
    TOO_MUCH_MEMORY = "too_much_memory"
    ENDED_EARLY = "ended_early"  # The process ended otherwise, or said what is no answer.
    GIVEN_UP = "given_up"  # Three tries have not come to an end.


class Unreadable(Exception):
    """Nothing can be found in a file."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


async def read_installer(file: BinaryIO, suffix: str) -> Findings:
    """What is found in a file.

    Raises:
        Unreadable: nothing can be found in it.
        Unavailable: this machine can start no process now, which says nothing of the file.
    """
    head = await asyncio.to_thread(os.pread, file.fileno(), LONGEST, 0)
    if not may_be_an_installer(head):
        return Findings()
    process = await _started(file, suffix)
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await _answer(process)
            status = await process.wait()
    except TimeoutError:
        raise Unreadable(Reason.TOO_LONG) from None
    finally:
        await _end(process)
    if status:
        raise Unreadable(_reason(status))
    try:
        return Findings.parse(orjson.loads(answer))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreadable(Reason.ENDED_EARLY) from None


async def _started(file: BinaryIO, suffix: str) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-s", "-P", "-m", "upload_service.inspection", suffix),
            stdin=file,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd="/",
            env={"PYTHONPATH": str(CODE)},
            start_new_session=True,
        )
    except OSError as error:  # such as EAGAIN, ENOMEM or EMFILE
        raise Unavailable(f"No process can be started: {error.strerror}.") from None


async def _answer(process: asyncio.subprocess.Process) -> bytes:
    """All that the process says, if that is no more than it may."""
    assert process.stdout is not None  # noqa: S101  by how it was started
    try:
        await process.stdout.readexactly(ANSWER_LIMIT + 1)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise Unreadable(Reason.ENDED_EARLY)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process, and what it may have started, where it still runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_PATIENCE):
            await process.communicate()  # `wait` would wait for what nobody reads.


def _reason(status: int) -> Reason:
    known = {DAMAGED: Reason.DAMAGED, OUT_OF_MEMORY: Reason.TOO_MUCH_MEMORY, -signal.SIGXCPU: Reason.TOO_LONG}
    return known.get(status, Reason.ENDED_EARLY)
