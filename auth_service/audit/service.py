"""The audit log: what administrators and operators wrote and who signed in, appended and never changed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from weakref import WeakValueDictionary

from auth_service.audit.chain import Head, Link, Note, Seals
from auth_service.model import AuditBusy, AuditEntry
from common.telemetry import log

ATTEMPTS = 100  # at a place in the chain; each one lost is another replica's entry that was kept
OPERATORS = "internal"  # the log of what concerns no tenant: no tenant can have this id, so no address leads to it


class SequenceConflict(Exception):
    """Another entry has this number already."""


class DuplicateEntry(Exception):
    """This entry is in the log already."""


@dataclass(frozen=True)
class Selection:
    """Which entries are wanted: those before a number, of a user, of an operation, of a time; empty or None for all."""

    before: int | None = None
    user: str = ""
    operation: str = ""
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = Selection()


class AuditStore(Protocol):
    """Where entries are kept; the store decides that a number is given once."""

    async def add(self, link: Link) -> None:
        """Raises PlaceTaken or EntryKept."""

    async def newest(self, tenant_id: str) -> Head: ...

    async def note(self, tenant_id: str) -> Note | None: ...

    async def keep_note(self, tenant_id: str, note: Note) -> None:
        """Keep it where none of a later head is kept."""

    def select(
        self, tenant_id: str, wanted: Selection, *, limit: int | None = None, oldest_first: bool = False
    ) -> AsyncIterator[Link | None]:
        """Entries by their numbers; None for one that is not as this program writes them."""

    def unchained(self, tenant_id: str) -> AsyncIterator[AuditEntry]:
        """What versions before the chain have written, oldest first."""

    async def forget_unchained(self, tenant_id: str, entry_id: str) -> None: ...


class Audit:
    """Writes and reads the logs."""

    def __init__(self, store: AuditStore, seals: Seals) -> None:
        self._store = store
        self._seals = seals
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def record(self, tenant_id: str, entry: AuditEntry) -> None:
        """Append an entry, with only those of its changes that change a value. An entry with a known id is not added.

        Raises AuditBusy.
        """
        # The database keeps milliseconds: what is sealed must be what is read again.
        at = entry.at.replace(microsecond=entry.at.microsecond // 1000 * 1000)
        changes = {name: (before, after) for name, (before, after) in entry.changes.items() if before != after}
        await self._append(tenant_id, replace(entry, at=at, changes=changes))

    async def head(self, tenant_id: str) -> Head:
        """What the next entry follows: the newest one, or a later one that was noted and is gone.

        An entry that is removed leaves its gap for ever, whatever is appended after it.
        """
        newest, note = await asyncio.gather(self._store.newest(tenant_id), self._store.note(tenant_id))
        if note and note.head.sequence > newest.sequence:
            if self._seals.holds_note(tenant_id, note):
                return note.head
            log.error("audit_note_altered", tenant_id=tenant_id)
        elif newest.sequence and (not note or note.head.sequence < newest.sequence):
            # Who added it has not come to note it. A note is at most one entry behind: `verify` relies on it.
            await self._store.keep_note(tenant_id, self._seals.note(tenant_id, newest))
        return newest

    def select(
        self,
        tenant_id: str,
        wanted: Selection = EVERYTHING,
        *,
        limit: int | None = None,
        oldest_first: bool = False,
    ) -> AsyncIterator[Link | None]:
        """Entries, the newest first unless said otherwise; None for one that somebody has made unreadable."""
        return self._store.select(tenant_id, wanted, limit=limit, oldest_first=oldest_first)

    async def take_in(self, tenant_id: str, done: Callable[[int], None]) -> None:
        """Append what versions before the chain have written. Cut short, it goes on when it is called again.

        `done` is told of each entry.
        """
        async for entry in self._store.unchained(tenant_id):
            await self._append(tenant_id, entry)
            await self._store.forget_unchained(tenant_id, entry.entry_id)
            done(1)

    async def _append(self, tenant_id: str, entry: AuditEntry) -> None:
        # One at a time here; only replicas race for a place.
        async with self._turns.setdefault(tenant_id, asyncio.Lock()):
            for _ in range(ATTEMPTS):
                link = self._seals.link(tenant_id, await self.head(tenant_id), entry)
                try:
                    await self._store.add(link)
                except SequenceConflict:
                    continue
                except DuplicateEntry:
                    return
                await self._store.keep_note(tenant_id, self._seals.note(tenant_id, link.head))
                # Logs are kept elsewhere: the heads in them are witnesses that no one at the database can change.
                log.info("audit_recorded", tenant_id=tenant_id, head=str(link.head))
                return
        raise AuditBusy
