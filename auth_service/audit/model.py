"""The entries of the audit log, their places in the chain, and their errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

from common.errors import InvalidField, Unavailable
from common.telemetry import is_hidden

OPERATORS = "internal"  # the log of operators' commands without a tenant; no tenant can have this id
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


class AuditBusy(Unavailable):
    """Too many writers append to one log at once; this entry was not recorded."""

    text = "The audit log is busy; try again soon."


class SequenceConflict(Exception):
    """Another entry has this number already."""


@dataclass(frozen=True)
class AuditEntry:
    """A write or a sign-in of one administrator or operator.

    `target` holds short names and ids. `changes` holds the old and the new value of each setting. Neither holds a
    secret. Recording the same `entry_id` again changes nothing.
    """

    operation: str
    user: str
    ip: str
    status: int
    request_id: str
    target: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    entry_id: str = field(default_factory=lambda: uuid4().hex)


def to_audit_text(text: str) -> str:
    r"""Escape characters that nobody sees, and those that reorder others: `\u202e`. Line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    is_escaped = is_hidden(character) and character not in "\t\n\r"
    return character.encode("unicode_escape").decode() if is_escaped else character


@dataclass(frozen=True)
class Head:
    """The newest entry of a log: its number, from 1 on, and its signature."""

    sequence: int = 0
    hash: str = "0" * 64

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `SEQUENCE:HASH`. Raises InvalidField."""
        match = _HEAD.fullmatch(text)
        if not match:
            raise InvalidField("--expect", "must be SEQUENCE:HASH, as `pkgrepo audit verify` printed it")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


@dataclass(frozen=True)
class ChainedEntry:
    """An entry with its number, the signature before it, and its own signature."""

    tenant_id: str
    sequence: int
    previous: str
    entry: AuditEntry
    hash: str = ""

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)

    def content(self) -> dict[str, Any]:
        """The signed content as JSON values."""
        entry = self.entry
        return {
            "tenant_id": self.tenant_id,
            "sequence": self.sequence,
            "id": entry.entry_id,
            "at": entry.at.isoformat(timespec="milliseconds"),
            "user": entry.user,
            "ip": entry.ip,
            "operation": entry.operation,
            "target": dict(entry.target),
            "changes": {name: {"before": before, "after": after} for name, (before, after) in entry.changes.items()},
            "status": entry.status,
            "request_id": entry.request_id,
            "previous": self.previous,
        }

    def exported(self) -> dict[str, Any]:
        """The content with its signature: an entry of the interface, and a line of an export."""
        return {**self.content(), "hash": self.hash}


@dataclass(frozen=True)
class SignedHead:
    """The head that is stored beside the log."""

    head: Head
    signature: str


class Outcome(StrEnum):
    """Whether an operation was executed."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True)
class Selection:
    """A filter of entries: before a number, of a user, of an operation, with an outcome, of a time range.

    Empty or None selects all.

    At most `limit` entries are selected, the newest first unless `oldest_first`.
    """

    before: int | None = None
    user: str = ""
    operation: str = ""
    outcome: Outcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
    oldest_first: bool = False
