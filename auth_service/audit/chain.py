"""The signed chain of an audit log: each entry is signed with its number and the signature of the entry before.

Signatures are HMAC-SHA256 under AUDIT_KEY. Without the key, nobody with access to the database can alter, move, insert
or remove an entry unnoticed. The newest entries could still be removed, so the head is stored beside the log, signed
too. An old signed head could be put back; against that, auditors write down a head and compare.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from auth_service.audit.model import AuditEntry, ChainedEntry, Head, Selection, SignedHead
from auth_service.audit.store import MongoAuditStore


class ChainBroken(Exception):
    """The log was altered; `sequence` is the first entry that shows it, the text says how."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"entry {sequence} {why}")
        self.sequence = sequence


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


async def verify(
    store: MongoAuditStore,
    signer: AuditSigner,
    tenant_id: str,
    *,
    expected: Head | None = None,
    checked: Callable[[], None] = lambda: None,
) -> Head:
    """Verify a whole log while others may append to it, and return its head; `checked` is called after each entry.

    `expected` is an earlier head of the log. Raises ChainBroken.
    """
    before = await store.signed_head(tenant_id)
    stored = before.head if before and signer.verify_head(tenant_id, before) else None
    known_heads = [head for head in (expected, stored) if head]
    last = Head()
    async for chained in store.select(tenant_id, Selection(oldest_first=True)):
        number = last.sequence + 1
        if chained is not None and chained.sequence > number:
            raise ChainBroken(number, "was removed")
        if chained is None or chained.sequence < number or not signer.verify(chained):
            raise ChainBroken(number, "is not as it was written: altered, moved, or put there by someone else")
        if chained.previous != last.hash:
            raise ChainBroken(number, "does not follow the one before, which is another than was written there")
        last = chained.head
        if any(head.sequence == last.sequence and head != last for head in known_heads):
            raise ChainBroken(number, "is another than there was once")
        checked()
    for head in known_heads:
        if head.sequence > last.sequence:
            raise ChainBroken(last.sequence + 1, f"was removed: the log reached entry {head.sequence} once")
    if before and not stored:
        raise ChainBroken(last.sequence, "is the newest, but the note of the newest is not as it was written")
    after = await store.signed_head(tenant_id)
    if last.sequence - (after.head.sequence if after else 0) > 1:
        raise ChainBroken(last.sequence, "is the newest, but the note of the newest was removed or put back")
    return last
