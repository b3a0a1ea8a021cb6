"""Verifies a whole log: from its first entry to its head, and against a head that an auditor wrote down."""

from collections.abc import Callable

from auth_service.audit.chain import AuditSigner
from auth_service.audit.model import Head, Selection
from auth_service.audit.store import MongoAuditStore


class ChainBroken(Exception):
    """The log was altered; `sequence` is the first entry that shows it, the text says how."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"entry {sequence} {why}")
        self.sequence = sequence


async def verify(
    store: MongoAuditStore,
    signer: AuditSigner,
    tenant_id: str,
    *,
    expected: Head | None = None,
    checked: Callable[[], None] = lambda: None,
) -> Head:
    """Verify a log while others may append to it, and return its head; `checked` is called after each entry.

    `expected` is an earlier head of the log. Raises ChainBroken.
    """
    before = await store.signed_head(tenant_id)
    stored = before.head if before and signer.verify_head(tenant_id, before) else None
    known_heads = [head for head in (expected, stored) if head]
    last = Head()
    async for chained in store.select(tenant_id, Selection(), oldest_first=True):
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
