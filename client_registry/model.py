"""What all features of client_registry share: the clock and the form of ids."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def utc_now() -> datetime:
    return datetime.now(UTC)


def uuid_text(text: str) -> str | None:
    """The UUID in its canonical spelling; None if the text is no UUID."""
    lower = text.lower()
    return lower if _UUID.fullmatch(lower) else None
