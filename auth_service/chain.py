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


class Seals:
    """Makes seals and knows its own."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def link(self, tenant_id: str, head: Head, entry: AuditEntry) -> Link:
        """The entry as the one after `head`."""
        place = (tenant_id, head.sequence + 1, head.hash)
        return Link(*place, entry, self._seal(Link(*place, entry).told()))

    def holds(self, link: Link) -> bool:
        """Whether it is as it was sealed."""
        return hmac.compare_digest(self._seal(link.told()).encode(), link.hash.encode())

    def of_head(self, tenant_id: str, head: Head) -> str:
        """The seal under which a head is noted."""
        return self._seal({"head_of": tenant_id, "sequence": head.sequence, "hash": head.hash})

    def _seal(self, told: dict[str, Any]) -> str:
        # Canonical: names in order, no spaces, everything beyond ASCII escaped.
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":")).encode("ascii")
        return hmac.new(self._key, canonical, hashlib.sha256).hexdigest()
