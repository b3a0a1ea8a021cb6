"""Verdicts of a malware scanner, and the scanner as scans need it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from upload_service.model import Upload

REASON_LIMIT = 200  # characters


class ScanState(StrEnum):
    """The state of the scan of a file."""

    PENDING = "pending"
    CLEAN = "clean"
    INFECTED = "infected"
    TOO_LARGE = "too_large"  # The scanner has not read all of it.
    FAILED = "failed"  # The scan is repeated.
    OFF = "off"  # No scanner is configured.


@dataclass(frozen=True)
class Engine:
    """The scanner's name and version, and the date of its signature database in ISO format; "" if it names none."""

    name: str = ""
    signatures: str = ""


@dataclass(frozen=True)
class Verdict:
    """A verdict about all bytes of a file: clean, infected or too large. `reason` names what was found."""

    state: ScanState
    reason: str = ""


class ScanFailed(Exception):
    """No verdict: the scanner is not reached, or its answer is not exactly a verdict. The text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(plain_text(reason))


class Scanner(Protocol):
    """A malware scanner. All methods raise ScanFailed."""

    async def check(self) -> Engine:
        """Check that the scanner responds and is configured as needed."""

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        """Send the bytes of a file, and return the verdict about them."""


def scan_document(state: ScanState, sha256: str = "", at: datetime | None = None) -> dict[str, Any]:
    """The scan of a file without details, as records and answers have it."""
    return {"state": state, "reason": "", "engine": "", "signatures": "", "sha256": sha256, "at": at}


def plain_text(text: str) -> str:
    """A text of a scanner without control and format characters, of limited length."""
    return "".join(character for character in text if character.isprintable())[:REASON_LIMIT].strip()
