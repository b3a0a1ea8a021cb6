"""Inspects one installer in a confined process."""

import asyncio
import os
import signal
from enum import StrEnum
from typing import BinaryIO

import orjson

from common.concurrency.confined_process import ConfinedProcessFailed, run_confined
from common.concurrency.confinement import OUT_OF_MEMORY
from upload_service.inspection.exit_status import DAMAGED
from upload_service.inspection.findings import Findings
from upload_service.inspection.formats.signatures import LONGEST, may_be_an_installer

WALL_TIME = 20.0  # seconds
OUTPUT_LIMIT = 1 << 18  # bytes


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
    module = "upload_service.inspection"
    try:
        output = await run_confined(module, suffix, stdin=file, wall_time=WALL_TIME, output_limit=OUTPUT_LIMIT)
    except TimeoutError:
        raise Unreadable(Reason.TOO_LONG) from None
    except ConfinedProcessFailed as error:
        raise Unreadable(_reason(error.status)) from None
    try:
        return Findings.parse(orjson.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreadable(Reason.ENDED_EARLY) from None


def _reason(status: int | None) -> Reason:
    reasons: dict[int | None, Reason] = {
        DAMAGED: Reason.DAMAGED,
        OUT_OF_MEMORY: Reason.TOO_MUCH_MEMORY,
        -signal.SIGXCPU: Reason.TOO_LONG,
    }
    return reasons.get(status, Reason.ENDED_EARLY)
