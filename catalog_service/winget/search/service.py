"""Searches the packages of each tenant in an index that is cached."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence, Set
from contextlib import aclosing
from typing import NamedTuple

from catalog_service.catalog.reader import EntryReader, RingReader, WholeEntry
from catalog_service.catalog.segments import segments_of
from catalog_service.model.stages import known_ring
from catalog_service.model.versions import PackageVersion
from catalog_service.revisions.model import StateReader
from catalog_service.winget.contracts import LATEST, Contract
from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.evaluation import candidate_segments, matching_numbers
from catalog_service.winget.search.index import SIZE, Index, IndexSegment, Record
from catalog_service.winget.search.records import records_of
from catalog_service.winget.search.requests import Search
from common.caching.tenant_cache import TenantCache, TooLarge
from common.concurrency.limits import FairConcurrencyLimit

UNCACHED_READS = 4  # catalogs too large for the cache that are read at once, one of each tenant


class SearchResult(NamedTuple):
    """The matching packages, and the revision of the catalog; "" while the catalog is being changed."""

    records: Sequence[Record]
    revision: str


class IndexReader:
    """Reads packages into indexes of at most `memory` bytes."""

    def __init__(self, read_entries: EntryReader[PackageVersion], read_rings: RingReader, memory: int) -> None:
        self._read_entries = read_entries
        self.read_rings = read_rings
        self._memory = memory

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> Index:
        size = 0
        segments: list[IndexSegment] = []
        rings = await self.read_rings(tenant_id)
        async for batch in self.segments(tenant_id, rings):
            segments += batch
            size += sum(segment.size for segment in batch)
            if size > self._memory:
                raise TooLarge  # before any other index is dropped
        return Index(revision, segments, rings)

    async def update(self, tenant_id: str, value: Index, revision: str, changed: Set[str]) -> Index:
        changes: dict[str, Sequence[Record]] = dict.fromkeys(changed, ())
        async for entries in self._read_entries(tenant_id, changed):
            # A change of the rings changes every package, so these are current.
            records = await asyncio.to_thread(lambda batch: [records_of(each, value.rings) for each in batch], entries)
            changes |= zip((entry.package.package_id for entry in entries), records, strict=True)
        return await asyncio.to_thread(value.replaced, revision, changes)

    async def segments(self, tenant_id: str, rings: Sequence[str]) -> AsyncIterator[Sequence[IndexSegment]]:
        async for entries in self._read_entries(tenant_id, None):
            yield await asyncio.to_thread(_segments_of, entries, rings)


class WingetSearch:
    """Searches current packages, and reads only changed ones."""

    def __init__(
        self,
        read_state: StateReader,
        read_entries: EntryReader[PackageVersion],
        read_rings: RingReader,
        *,
        memory: int,
        on_evict: Callable[[], None] = lambda: None,
    ) -> None:
        """All indexes together take at most `memory` bytes. A larger catalog is read for each search.

        `on_evict` is called for each index that is dropped to make room for another.
        """
        self._reader = IndexReader(read_entries, read_rings, memory)
        self._indexes = TenantCache(read_state, self._reader, max_size=memory, on_evict=on_evict)
        self._uncached_reads = FairConcurrencyLimit(UNCACHED_READS)

    @property
    def size(self) -> int:
        """The bytes of all indexes."""
        return self._indexes.size

    async def find(
        self,
        tenant_id: str,
        search: Search,
        ring: str,
        hidden: frozenset[str],
        contract: Contract = LATEST,
        tenant_version: str = "",
    ) -> SearchResult:
        """Return the first packages of a search in the order of their ids, one more than a page if there are more.

        They are those that a ring, or `ALL_RINGS`, sees. Packages without a version that the contract supports are left
        out. The result includes every change that was answered before this call, or before the caller read the
        `tenant_version`.
        """
        records: list[Record] = []
        index, revision = await self._index(tenant_id, tenant_version)
        cooperative = CooperativeYield()
        rings = index.rings if index else await self._reader.read_rings(tenant_id)
        ring = known_ring(ring, rings)
        segments = _cached_segments(index, search) if index else self._uncached_segments(tenant_id, rings)
        async with aclosing(segments):
            async for segment in segments:
                await cooperative.pause()
                if segment.ids[-1] <= search.after:
                    continue
                for number in await matching_numbers(search, segment, cooperative):
                    record = segment.records[number]
                    is_seen = record.rings is None or ring in record.rings
                    if not is_seen or contract.minor < min(record.since):
                        continue
                    if record.package_id > search.after and record.package_id not in hidden:
                        records.append(record)
                if len(records) > search.page:
                    break
        return SearchResult(records[: search.page + 1], revision)

    async def _index(self, tenant_id: str, tenant_version: str) -> tuple[Index | None, str]:
        """Return the current index, None if it is too large, and its revision."""
        if self._indexes.is_too_large(tenant_id):
            return None, ""
        check = await self._indexes.check(tenant_id, tenant_version)
        async with self._indexes.lock(tenant_id):
            return await self._indexes.get(tenant_id, check), check.state.stable_revision

    async def _uncached_segments(self, tenant_id: str, rings: Sequence[str]) -> AsyncGenerator[IndexSegment, None]:
        size = 0
        async with self._uncached_reads.acquire(tenant_id, timeout=None):
            async for batch in self._reader.segments(tenant_id, rings):
                for segment in batch:
                    size += segment.size
                    yield segment
        self._indexes.set_measured_size(tenant_id, size)


async def _cached_segments(index: Index, search: Search) -> AsyncGenerator[IndexSegment, None]:
    for segment in candidate_segments(search, index.segments):
        yield segment


def _segments_of(entries: Sequence[WholeEntry], rings: Sequence[str]) -> Sequence[IndexSegment]:
    return segments_of([records for entry in entries if (records := records_of(entry, rings))], IndexSegment, SIZE)
