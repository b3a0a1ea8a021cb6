"""Inspects one installer in a confined process."""

import asyncio
import os
import signal
from typing import BinaryIO

import orjson

from common.concurrency.confined_process import ConfinedProcessFailed, run_confined
from common.concurrency.confinement import OUT_OF_MEMORY
from upload_service.inspection.model import DAMAGED_STATUS, MAGIC_LENGTH, MAGICS, Findings, Reason

WALL_TIME = 20.0  # seconds
OUTPUT_LIMIT = 1 << 18  # bytes


_REASONS: dict[int | None, Reason] = {  # by exit status
    DAMAGED_STATUS: Reason.DAMAGED,
    OUT_OF_MEMORY: Reason.TOO_MUCH_MEMORY,
    -signal.SIGXCPU: Reason.TOO_LONG,
}


class Unreadable(Exception):
    """A file cannot be inspected."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


async def read_installer(file: BinaryIO, suffix: str) -> Findings:
    """Inspect a file. Raises Unreadable, and Unavailable if this machine can start no process now."""
    head = await asyncio.to_thread(os.pread, file.fileno(), MAGIC_LENGTH, 0)
    if not head.startswith(MAGICS):
        return Findings()
    module = "upload_service.inspection"
    try:
        output = await run_confined(module, suffix, stdin=file, wall_time=WALL_TIME, output_limit=OUTPUT_LIMIT)
    except TimeoutError:
        raise Unreadable(Reason.TOO_LONG) from None
    except ConfinedProcessFailed as error:
        raise Unreadable(_REASONS.get(error.status, Reason.ENDED_EARLY)) from None
    try:
        return Findings.parse(orjson.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreadable(Reason.ENDED_EARLY) from None
