"""Whether a log is what was written: from its first entry to its head, and no further back than an auditor saw it."""

from collections.abc import Callable

from auth_service.audit.chain import Head, Seals
from auth_service.audit.service import AuditStore, Selection


class ChainBroken(Exception):
    """The log is not what was written; `sequence` is the first entry that shows it, the text says how."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"entry {sequence} {why}")
        self.sequence = sequence


async def verify(
    store: AuditStore,
    seals: Seals,
    tenant_id: str,
    *,
    expected: Head | None = None,
    checked: Callable[[], None] = lambda: None,
) -> Head:
    """Walk a log, while others may append to it, and give its head; `checked` is called after each entry.

    `expected` is a head that the log had once. Raises ChainBroken.
    """
    before = await store.note(tenant_id)
    noted = before.head if before and seals.holds_note(tenant_id, before) else None
    once = [head for head in (expected, noted) if head]
    found = Head()
    async for link in store.select(tenant_id, Selection(), oldest_first=True):
        number = found.sequence + 1
        if link is not None and link.sequence > number:
            raise ChainBroken(number, "was removed")
        if link is None or link.sequence < number or not seals.holds(link):
            raise ChainBroken(number, "is not as it was written: altered, moved, or put there by someone else")
        if link.previous != found.hash:
            raise ChainBroken(number, "does not follow the one before, which is another than was written there")
        found = link.head
        if any(head.sequence == found.sequence and head != found for head in once):
            raise ChainBroken(number, "is another than there was once")
        checked()
    for head in once:
        if head.sequence > found.sequence:
            raise ChainBroken(found.sequence + 1, f"was removed: the log reached entry {head.sequence} once")
    if before and not noted:
        raise ChainBroken(found.sequence, "is the newest, but the note of the newest is not as it was written")
    after = await store.note(tenant_id)
    if found.sequence - (after.head.sequence if after else 0) > 1:
        raise ChainBroken(found.sequence, "is the newest, but the note of the newest was removed or put back")
    return found
