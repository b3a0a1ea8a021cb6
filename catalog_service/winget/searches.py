"""What can be found of each tenant's packages, kept within a bound of memory, as catalogs are; see `snapshots`."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from catalog_service.entries import WholeEntry
from catalog_service.revisions import Look, Standing
from catalog_service.rounds import Rounds
from catalog_service.winget.block import Block, Record
from catalog_service.winget.contracts import LATEST, Contract
from catalog_service.winget.index import Index, blocks
from catalog_service.winget.records import record_of
from catalog_service.winget.requests import Search
from catalog_service.winget.turns import Turn

TENANTS = 10_000  # of whom something is kept, however small


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

    def __init__(self, looks: Rounds[Look]) -> None:
        self.looks = looks
        self.seen = 0
        self.index: Index | None = None
        self.too_large = False
        self.lock = asyncio.Lock()

    @property
    def size(self) -> int:
        return self.index.size if self.index else 0


class Searches:
    """Finds packages as they are now, and reads of them only what has changed."""

    def __init__(self, revisions: Revisions, entries: EntryReader, *, memory: int) -> None:
        """`memory` is how many bytes all indexes may take; what takes more alone is read for each search."""
        self._revisions = revisions
        self._entries = entries
        self._memory = memory
        self._turns = count(1)
        self._tenants: OrderedDict[str, _Kept] = OrderedDict()
        self._reading = asyncio.Lock()  # Only one at a time reads all of a catalog: that takes memory, too.

    @property
    def size(self) -> int:
        """The bytes that all indexes take."""
        return sum(kept.size for kept in self._tenants.values())

    async def find(self, tenant_id: str, search: Search, hidden: frozenset[str], contract: Contract = LATEST) -> Found:
        """The first packages of a search in the order of their ids, one more than its page has if there are more.

        Those of which a contract knows no version are not among them.
        """
        found: list[Record] = []
        kept = self._kept(tenant_id)
        index, revision = (None, "") if kept.too_large else await self._index(tenant_id, kept)
        turn = Turn()
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

    async def _read_blocks(self, tenant_id: str, kept: _Kept) -> AsyncGenerator[Block, None]:
        async with self._reading:
            size = 0
            async for entries in self._entries.read(tenant_id):
                for block in await asyncio.to_thread(_blocks_of, entries):
                    size += block.size
                    yield block
        kept.too_large = size > self._memory

    async def _index(self, tenant_id: str, kept: _Kept) -> tuple[Index | None, str]:
        """The tenant's index as it is now, None where there is no room for it, and the revision at which it is so."""
        look = await kept.looks.answer()
        async with kept.lock:
            if kept.index is None or kept.seen < look.turn:
                kept.index = await self._at(look.standing, tenant_id, kept)
                kept.seen = look.turn
                kept.too_large = kept.index is None
                self._make_room(kept)
            return kept.index, look.revision

    async def _at(self, standing: Standing, tenant_id: str, kept: _Kept) -> Index | None:
        index = kept.index  # The tenant's may be dropped, while this reads, for the room that another's needs.
        changed = standing.since(index.revision) if index else None
        if index is None or changed is None:
            index = kept.index = None  # There may not be room for both.
            async with self._reading:
                return await self._read(tenant_id, standing.revision)
        changes: dict[str, Record | None] = dict.fromkeys(changed)
        if changed:
            async for entries in self._entries.read(tenant_id, changed):
                changes |= {entry.package.package_id: record_of(entry) for entry in entries}
        index = await asyncio.to_thread(index.replaced, standing.revision, changes)
        return index if index.size <= self._memory else None

    async def _read(self, tenant_id: str, revision: str) -> Index | None:
        found: list[Block] = []
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
            self._tenants[tenant_id] = _Kept(Rounds(partial(self._look, tenant_id)))
            if len(self._tenants) > TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant_id)
        return self._tenants[tenant_id]

    async def _look(self, tenant_id: str) -> Look:
        kept = self._tenants.get(tenant_id)
        turn, known = next(self._turns), kept.index.revision if kept and kept.index else ""
        return Look(turn, await self._revisions.standing(tenant_id, known))

    def _make_room(self, kept: _Kept) -> None:
        """Drop other indexes, those that were asked for longest ago first, until the rest fits."""
        excess = self.size - self._memory
        for other in self._tenants.values():
            if excess <= 0:
                return
            if other is not kept:
                excess -= other.size
                other.index = None


async def _kept_blocks(index: Index) -> AsyncGenerator[Block, None]:
    for block in index.blocks:
        yield block


def _blocks_of(entries: Sequence[WholeEntry]) -> list[Block]:
    return list(blocks(found for found in map(record_of, entries) if found))
