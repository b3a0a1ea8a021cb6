"""What is asked of the audit log, and what users of winget are to agree to."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from auth_service.audit.service import Selection
from auth_service.model import USERNAME_LIMIT
from common.errors import InvalidField
from common.http.forms import MAX_INTEGER, Form, clean

ENTRIES_LIMIT = 1000
OPERATION_LIMIT = 64  # characters
AGREEMENTS_LIMIT = 16_000  # characters of all of them
AGREEMENT_LIMITS = {"label": 100, "text": 10_000, "url": 2048}  # characters


class Format(StrEnum):
    """How entries are answered."""

    JSON = "json"
    JSONL = "jsonl"


def selection(query: Form) -> Selection:
    """Raises InvalidField."""
    return Selection(
        before=query.integer("before", default=MAX_INTEGER) if query.get("before") else None,
        user=query.text("user", limit=USERNAME_LIMIT, required=False),
        operation=query.text("operation", limit=OPERATION_LIMIT, required=False),
        since=time("since", query.get("since")),
        until=time("until", query.get("until")),
    )


def source_agreements(sent: str) -> str:
    """The agreements of `Tenant`, in one spelling. Raises InvalidField."""
    name = "source_agreements"
    try:
        listed = orjson.loads(clean(name, sent, limit=AGREEMENTS_LIMIT, lines=True) or "[]")
    except orjson.JSONDecodeError:
        listed = None
    if not isinstance(listed, list):
        raise InvalidField(name, "must be a list in JSON", reason="not_a_json_list")
    found = [_agreement(name, one) for one in listed]
    return orjson.dumps(found).decode() if found else ""


def _agreement(name: str, sent: Any) -> dict[str, str]:
    if not isinstance(sent, dict) or not all(isinstance(sent.get(member, ""), str) for member in AGREEMENT_LIMITS):
        names = ", ".join(AGREEMENT_LIMITS)
        raise InvalidField(name, f"must have objects with the texts {names}", reason="not_objects", names=names)
    cleaned = {
        member: clean(name, sent.get(member, ""), limit=limit, lines=member == "text")
        for member, limit in AGREEMENT_LIMITS.items()
    }
    if cleaned["url"] and not cleaned["url"].startswith(("https://", "http://")):
        message = "has an address that does not begin with https:// or http://"
        raise InvalidField(name, message, reason="not_a_web_address")
    said = {member: text for member, text in cleaned.items() if text.strip()}
    if not said:
        raise InvalidField(name, "has an agreement that says nothing", reason="empty_agreement")
    return said


def page(query: Form, *, default: int) -> int | None:
    """How many entries are wanted; None for all. Raises InvalidField."""
    if not default and not query.get("limit"):
        return None
    limit = query.integer("limit", default=default)
    if not 1 <= limit <= ENTRIES_LIMIT:
        raise InvalidField("limit", f"must be from 1 to {ENTRIES_LIMIT}")
    return limit


def as_lines(query: Form) -> bool:
    """Whether JSON lines are wanted. Raises InvalidField."""
    return query.choice("format", Format, default=Format.JSON) is Format.JSONL


def time(name: str, text: str | None) -> datetime | None:
    """A moment in ISO 8601; one that names no time zone is UTC. Raises InvalidField."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidField(name, "must be a date or a time in ISO 8601, such as 2026-01-31T09:30:00Z") from None
