"""Searches the packages of each tenant in an index that is cached.

On a segment of the index, all conditions go through the packages in the order of their numbers. Each one looks for its
next match only from the first package on that all others can still match. A condition that matches nearly everything,
or nearly nothing, therefore costs little beside another one. No condition passes the same text twice. Scans come first:
many whole values, such as markets, can match everything, and segments without the others are skipped before.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence, Set
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple
from weakref import WeakValueDictionary

from catalog_service.catalog.reader import EntryReader, RingReader, WholeEntry, segments_of
from catalog_service.catalog.revision_store import StateReader
from catalog_service.model.releases import known_ring
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import LATEST, Contract
from catalog_service.winget.index import SIZE, Finder, Index, IndexSegment, Record, records_of
from catalog_service.winget.requests import Match, Search
from common.auth.internal_tokens import Caller
from common.caching import TenantCache, TooLarge
from common.concurrency.limits import ConcurrencyLimit, FairConcurrencyLimit

STRETCH = 0.005  # seconds between two pauses
SEARCHES_OF_NETWORK = 2  # searches at once that scan texts, from one network, in a process
SEARCHES_OF_TENANT = 4  # the same of one tenant
SEARCHES_WAITING = 1024  # waiting searches of each network and of each tenant; more are refused
SEARCH_TIMEOUT = 3.0  # seconds
UNCACHED_READS = 4  # catalogs too large for the cache that are read at once, one of each tenant


class SearchLimit:
    """Limits the searches that scan texts, for each network and for each tenant.

    A search waits in a short queue. One network, or one tenant, cannot use up the processor time of a replica.
    """

    def __init__(self) -> None:
        # An entry exists while a search holds it.
        self._limits: WeakValueDictionary[tuple[str, str], ConcurrencyLimit] = WeakValueDictionary()

    @asynccontextmanager
    async def acquire(self, caller: Caller) -> AsyncIterator[None]:
        """Run a search of this caller within the limits. Raises Overloaded."""
        network = self._limit("network", caller.network, SEARCHES_OF_NETWORK)
        tenant = self._limit("tenant", caller.tenant_id, SEARCHES_OF_TENANT)
        async with network.acquire(SEARCH_TIMEOUT), tenant.acquire(SEARCH_TIMEOUT):
            yield

    def _limit(self, kind: str, name: str, searches: int) -> ConcurrencyLimit:
        return self._limits.setdefault((kind, name), ConcurrencyLimit(searches, waiting=SEARCHES_WAITING))


class CooperativeYield:
    """Lets other tasks run between two pieces of work."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Yield to other tasks if the last pause was a while ago."""
        if time.perf_counter() - self._began >= STRETCH:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class _Cursor:
    """Finds the packages that one of several matches has."""

    def __init__(self, matches: Sequence[Match], segment: IndexSegment) -> None:
        self._matches = matches
        self._segment = segment
        self._finders: list[Finder] = []
        self._following: list[int] = []  # the last result of each finder
        self._next = len(segment.records)  # the least of them
        self.has_begun = False

    async def begin(self, number: int, cooperative: CooperativeYield) -> None:
        """Run each finder once. Later runs are short, because they go on from there."""
        self._finders = [finder for match in self._matches for finder in match.finders(self._segment)]
        for finder in self._finders:
            await cooperative.pause()
            self._following.append(finder(number))
        self._next = min(self._following, default=self._next)
        self.has_begun = True

    def first(self, number: int) -> int:
        """Return the first matching package from a number on; the numbers of the calls ascend."""
        if self._next < number:
            for index, finder in enumerate(self._finders):
                if self._following[index] < number:
                    self._following[index] = finder(number)
                if self._following[index] == number:  # The other finders can find nothing before it.
                    self._next = number
                    return number
            self._next = min(self._following)
        return self._next


async def matching_numbers(search: Search, segment: IndexSegment, cooperative: CooperativeYield) -> Sequence[int]:
    """Return the numbers of the matching packages in ascending order; other tasks run between two matches."""
    conditions = [(match,) for match in sorted(search.filters, key=attrgetter("of_whole_values"))]
    cursors = [_Cursor(matches, segment) for matches in (*conditions, search.either) if matches]
    numbers, number, end = list[int](), 0, len(segment.records)
    if not cursors:
        return range(end)
    while number < end:
        for index, cursor in enumerate(cursors):
            await cooperative.pause()
            if not cursor.has_begun:
                await cursor.begin(number, cooperative)
            following = cursor.first(number)
            if following != number:
                cursors.insert(0, cursors.pop(index))  # The rarest matches come first.
                break
        else:
            numbers.append(number)
            following = number + 1
        number = following
    return numbers


def candidate_segments(search: Search, segments: Sequence[IndexSegment]) -> Sequence[IndexSegment]:
    """Return the segments that may have matching packages: the others lack all of a need's lines and pieces."""
    for lines, pieces in search.needs():
        segments = [
            segment
            for segment in segments
            if not segment.lines.isdisjoint(lines) or (pieces and any(map(segment.texts.may_have, pieces)))
        ]
    return segments


class SearchResult(NamedTuple):
    """The matching packages, and the revision of the catalog; "" while the catalog is being changed."""

    records: Sequence[Record]
    revision: str


@dataclass(eq=False)
class IndexReader:
    """Reads packages into indexes of at most `memory` bytes."""

    read_entries: EntryReader[PackageVersion]
    read_rings: RingReader
    memory: int

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> Index:
        size = 0
        segments: list[IndexSegment] = []
        rings = await self.read_rings(tenant_id)
        async for batch in self.segments(tenant_id, rings):
            segments += batch
            size += sum(segment.size for segment in batch)
            if size > self.memory:
                raise TooLarge  # before any other index is dropped
        return Index(revision, segments, rings)

    async def update(self, tenant_id: str, value: Index, revision: str, changed: Set[str]) -> Index:
        changes: dict[str, Sequence[Record]] = dict.fromkeys(changed, ())
        async for entries in self.read_entries(tenant_id, changed):
            # A change of the rings changes every package, so these are current.
            records = await asyncio.to_thread(lambda batch: [records_of(each, value.rings) for each in batch], entries)
            changes |= zip((entry.package.package_id for entry in entries), records, strict=True)
        return await asyncio.to_thread(value.replaced, revision, changes)

    async def segments(self, tenant_id: str, rings: Sequence[str]) -> AsyncIterator[Sequence[IndexSegment]]:
        async for entries in self.read_entries(tenant_id, None):
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
