"""The signed chain of an audit log: each entry is signed with its number and the signature of the entry before.

Signatures are HMAC-SHA256 under AUDIT_KEY. Without the key, nobody with access to the database can alter, move, insert
or remove an entry unnoticed. The newest entries could still be removed, so the head is stored beside the log, signed
too. An old signed head could be put back; against that, auditors write down a head and compare.
"""

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, Self

from auth_service.audit.model import AuditEntry
from common.errors import InvalidField

NO_HASH = "0" * 64
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True)
class Head:
    """The newest entry of a log: its number, from 1 on, and its signature."""

    sequence: int = 0
    hash: str = NO_HASH

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
        """The signed content as JSON values, which the interface and exports show too."""
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
class SignedHead:
    """The head that is stored beside the log."""

    head: Head
    signature: str


class AuditSigner:
    """Signs with the first of its keys and verifies with each of them."""

    def __init__(self, keys: str) -> None:
        """`keys` are separated by white space, the newest first."""
        self._keys = [key.encode() for key in keys.split()]

    def sign(self, tenant_id: str, head: Head, entry: AuditEntry) -> ChainedEntry:
        """The signed entry that follows `head`."""
        position = (tenant_id, head.sequence + 1, head.hash)
        return ChainedEntry(*position, entry, self._signatures(ChainedEntry(*position, entry).content())[0])

    def verify(self, chained: ChainedEntry) -> bool:
        return chained.hash in self._signatures(chained.content())

    def sign_head(self, tenant_id: str, head: Head) -> SignedHead:
        return SignedHead(head, self._signatures(_head_content(tenant_id, head))[0])

    def verify_head(self, tenant_id: str, signed: SignedHead) -> bool:
        return signed.signature in self._signatures(_head_content(tenant_id, signed.head))

    def _signatures(self, content: dict[str, Any]) -> list[str]:
        # Canonical: sorted names, no spaces, everything beyond ASCII escaped.
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
        return [hmac.new(key, canonical, hashlib.sha256).hexdigest() for key in self._keys]


def _head_content(tenant_id: str, head: Head) -> dict[str, Any]:
    return {"head_of": tenant_id, "sequence": head.sequence, "hash": head.hash}
