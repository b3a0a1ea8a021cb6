"""The signed chain of an audit log: each entry is signed with its number and the signature of the entry before.

Signatures are HMAC-SHA256 under AUDIT_KEY. Without the key, nobody with access to the database can alter, move, insert
or remove an entry unnoticed. The newest entries could still be removed, so the head is stored beside the log, signed
too. An old signed head could be put back; against that, auditors write down a head and compare.
"""

import hashlib
import hmac
import json
from typing import Any

from auth_service.audit.model import AuditEntry, ChainedEntry, Head, SignedHead


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
