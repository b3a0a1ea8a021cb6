"""The entries of the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from common.errors import Unavailable


class AuditBusy(Unavailable):
    """Too many writers append to one log at once; this entry was not recorded."""

    def __init__(self) -> None:
        super().__init__("The audit log is busy; try again soon.")


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
