"""What can be found of each tenant's packages, kept within a bound of memory, as catalogs are; see `snapshots`."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from catalog_service.catalog.reader import WholeEntry
from catalog_service.revisions.model import Look, Standing
from catalog_service.winget.contracts import LATEST, Contract
from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.index import Index, blocks
from catalog_service.winget.search.index_segment import IndexSegment, Record
from catalog_service.winget.search.records import record_of
from catalog_service.winget.search.requests import Search
from common.concurrency.single_flight import SingleFlight

TENANTS = 10_000  # of whom something is kept, however small
PASSING = 4  # catalogs too large to be kept that are read at once, one for each tenant: that takes memory, too


class Found(NamedTuple):
    """What a search found, and the revision of the catalog at which it is so: "" where that is being changed."""

    records: Sequence[Record]
    revision: str


class Revisions(Protocol):
    async def standing(self, tenant_id: str, known: str) -> Standing:
        """Where a catalog stands; without the latest changes where that is at the revision `known`."""


class EntryReader(Protocol):
    def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[WholeEntry]]: ...


class _Kept:
    """What is kept of a tenant: the index as it was found at the look `seen`; none where it is too large."""

    def __init__(self, looks: SingleFlight[Look]) -> None:
        self.looks = looks
        self.seen = 0
        self.index: Index | None = None
        self.size = 0  # bytes, as they are counted
        self.too_large = False
        self.lock = asyncio.Lock()
        self.passing = asyncio.Lock()


class Searches:
    """Finds packages as they are now, and reads of them only what has changed.

    `size` is how many bytes all indexes take.
    """

    def __init__(
        self,
        revisions: Revisions,
        entries: EntryReader,
        *,
        memory: int,
        dropped: Callable[[], None] = lambda: None,
    ) -> None:
        """`memory` is how many bytes all indexes may take; what takes more alone is read for each search.

        `dropped` hears of each index that gives way to another.
        """
        self._revisions = revisions
        self._entries = entries
        self._memory = memory
        self._turns = count(1)
        self._tenants: OrderedDict[str, _Kept] = OrderedDict()
        self._reading = asyncio.Lock()  # Only one index at a time takes memory that is not counted yet.
        self._passing = asyncio.Semaphore(PASSING)
        self._dropped = dropped
        self.size = 0

    async def find(self, tenant_id: str, search: Search, hidden: frozenset[str], contract: Contract = LATEST) -> Found:
        """The first packages of a search in the order of their ids, one more than its page has if there are more.

        Those of which a contract knows no version are not among them.
        """
        found: list[Record] = []
        kept = self._kept(tenant_id)
        index, revision = (None, "") if kept.too_large else await self._index(tenant_id, kept)
        turn = CooperativeYield()
        async with aclosing(_kept_blocks(index) if index else self._read_blocks(tenant_id, kept)) as there:
            async for block in there:
                await turn.pause()
                if block.ids[-1] <= search.after:
                    continue
                for at in sorted(await search.within(block, turn)):
                    record = block.records[at]
                    known = contract.minor >= min(record.since)
                    if known and record.package_id > search.after and record.package_id not in hidden:
                        found.append(record)
                if len(found) > search.page:
                    break
        return Found(found[: search.page + 1], revision)

    async def _read_blocks(self, tenant_id: str, kept: _Kept) -> AsyncGenerator[IndexSegment, None]:
        size = 0
        async with kept.passing, self._passing:
            async for entries in self._entries.read(tenant_id):
                for block in await asyncio.to_thread(_blocks_of, entries):
                    size += block.size
                    yield block
        kept.too_large = size > self._memory

    async def _index(self, tenant_id: str, kept: _Kept) -> tuple[Index | None, str]:
        """The tenant's index as it is now, None where there is no room for it, and the revision at which it is so."""
        look = await kept.looks.run()
        async with kept.lock:
            if kept.index is None or kept.seen < look.turn:
                index = await self._at(look.standing, tenant_id, kept)
                self._keep(tenant_id, kept, index)
                kept.seen = look.turn
                kept.too_large = index is None
                self._make_room(kept)
            return kept.index, look.revision

    async def _at(self, standing: Standing, tenant_id: str, kept: _Kept) -> Index | None:
        index = kept.index  # The tenant's may be dropped, while this reads, for the room that another's needs.
        changed = standing.since(index.revision) if index else None
        if index is None or changed is None:
            index = None
            self._keep(tenant_id, kept, None)  # There may not be room for both.
            async with self._reading:
                return await self._read(tenant_id, standing.revision)
        if not changed:
            return index
        changes: dict[str, Record | None] = dict.fromkeys(changed)
        async for entries in self._entries.read(tenant_id, changed):
            records = await asyncio.to_thread(lambda read: list(map(record_of, read)), entries)
            changes |= zip((entry.package.package_id for entry in entries), records, strict=True)
        index = await asyncio.to_thread(index.replaced, standing.revision, changes)
        return index if index.size <= self._memory else None

    async def _read(self, tenant_id: str, revision: str) -> Index | None:
        found: list[IndexSegment] = []
        size = 0
        async for entries in self._entries.read(tenant_id):
            read = await asyncio.to_thread(_blocks_of, entries)
            found += read
            size += sum(block.size for block in read)
            if size > self._memory:
                return None
        return Index(revision, found)

    def _kept(self, tenant_id: str) -> _Kept:
        if tenant_id not in self._tenants:
            self._tenants[tenant_id] = _Kept(SingleFlight(partial(self._look, tenant_id)))
            if len(self._tenants) > TENANTS:
                _, forgotten = self._tenants.popitem(last=False)
                self.size -= forgotten.size
        self._tenants.move_to_end(tenant_id)
        return self._tenants[tenant_id]

    async def _look(self, tenant_id: str) -> Look:
        kept = self._tenants.get(tenant_id)
        turn, known = next(self._turns), kept.index.revision if kept and kept.index else ""
        return Look(turn, await self._revisions.standing(tenant_id, known))

    def _keep(self, tenant_id: str, kept: _Kept, index: Index | None) -> None:
        """Let a tenant have an index, or none; one that was forgotten meanwhile is not counted any more."""
        kept.index = index
        if self._tenants.get(tenant_id) is kept:
            size = index.size if index else 0
            self.size += size - kept.size
            kept.size = size

    def _make_room(self, kept: _Kept) -> None:
        """Drop other indexes, those that were asked for longest ago first, until the rest fits."""
        for tenant_id, other in self._tenants.items():
            if self.size <= self._memory:
                return
            if other.index is not None and other is not kept:
                self._keep(tenant_id, other, None)
                self._dropped()


async def _kept_blocks(index: Index) -> AsyncGenerator[IndexSegment, None]:
    for block in index.blocks:
        yield block


def _blocks_of(entries: Sequence[WholeEntry]) -> list[IndexSegment]:
    return list(blocks(found for found in map(record_of, entries) if found))
