"""The chain of a log: each entry is sealed together with its place and the seal of the entry before.

Seals are HMAC-SHA256 under AUDIT_KEY: who can write to the database but has no key cannot alter, move, insert or remove
an entry so that the chain still holds. The newest entries can be removed without a trace in the chain itself, so the
head is noted beside it, under a seal too; against who puts back an old note there is the head that an auditor wrote
down.
"""

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, Self

from auth_service.model import AuditEntry
from common.errors import InvalidField

NOTHING = "0" * 64
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True)
class Head:
    """The newest entry of a log: its number, from 1 on, and its seal."""

    sequence: int = 0
    hash: str = NOTHING

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `SEQUENCE:HASH`. Raises InvalidField."""
        found = _HEAD.fullmatch(text)
        if not found:
            raise InvalidField("--expect", "must be SEQUENCE:HASH, as `pkgrepo audit verify` printed it")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


@dataclass(frozen=True)
class Link:
    """An entry in its place."""

    tenant_id: str
    sequence: int
    previous: str
    entry: AuditEntry
    hash: str = ""

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)

    def told(self) -> dict[str, Any]:
        """Everything of it but the seal, in JSON's values: what is sealed, and what the interface and exports show."""
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


@dataclass(frozen=True)
class Note:
    """The head as it is noted beside the log, and the seal of the note."""

    head: Head
    seal: str


class Seals:
    """Makes seals and knows its own: under the first of its keys, and under each of them."""

    def __init__(self, keys: str) -> None:
        """Keys with white space between them, the newest first."""
        self._keys = [key.encode() for key in keys.split()]

    def link(self, tenant_id: str, head: Head, entry: AuditEntry) -> Link:
        """The entry as the one after `head`."""
        place = (tenant_id, head.sequence + 1, head.hash)
        return Link(*place, entry, self._seals(Link(*place, entry).told())[0])

    def holds(self, link: Link) -> bool:
        """Whether it is as it was sealed."""
        return link.hash in self._seals(link.told())

    def note(self, tenant_id: str, head: Head) -> Note:
        """A head as it is noted."""
        return Note(head, self._seals(_noted(tenant_id, head))[0])

    def holds_note(self, tenant_id: str, note: Note) -> bool:
        return note.seal in self._seals(_noted(tenant_id, note.head))

    def _seals(self, told: dict[str, Any]) -> list[str]:
        # Canonical: names in order, no spaces, everything beyond ASCII escaped.
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":")).encode("ascii")
        return [hmac.new(key, canonical, hashlib.sha256).hexdigest() for key in self._keys]


def _noted(tenant_id: str, head: Head) -> dict[str, Any]:
    return {"head_of": tenant_id, "sequence": head.sequence, "hash": head.hash}
