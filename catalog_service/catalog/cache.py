"""The catalogs as JSON, cached by tenant."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence, Set
from dataclasses import dataclass

from catalog_service.catalog.compression import PLAIN, Encoding
from catalog_service.catalog.reader import CatalogEntry, EntryReader
from catalog_service.catalog.snapshot import Fragment, RetainedBytes, Segment, Snapshot, View
from catalog_service.model.versions import VersionName
from catalog_service.revisions.model import CatalogState, StateReader
from common.caching.tenant_cache import RevisionCheck, TenantCache


@dataclass(frozen=True, eq=False)
class CatalogBody:
    """A catalog as a JSON array, in blocks; plain if there was no room for another encoding.

    `owner` keeps the memory of the blocks counted while the body exists.
    """

    blocks: Sequence[bytes]
    encoding: Encoding
    owner: object

    @property
    def length(self) -> int:
        return sum(map(len, self.blocks))


class SnapshotReader:
    """Reads and renders catalogs."""

    def __init__(self, read_entries: EntryReader[VersionName], render: Callable[[CatalogEntry], bytes]) -> None:
        self._read_entries = read_entries
        self._render = render

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> Snapshot:
        size, segments = 0, []
        async for fragments in self.fragments(tenant_id):
            segments.append(await asyncio.to_thread(Segment, fragments))
            size += segments[-1].size
            reserve(size)
        return Snapshot(revision, segments)

    async def update(self, tenant_id: str, value: Snapshot, revision: str, changed: Set[str]) -> Snapshot:
        changes: dict[str, Fragment | None] = dict.fromkeys(changed)
        async for fragments in self.fragments(tenant_id, changed):
            changes |= {fragment.package_id: fragment for fragment in fragments}
        return await asyncio.to_thread(value.replaced, revision, changes)

    async def fragments(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[Fragment]]:
        async for entries in self._read_entries(tenant_id, package_ids):
            yield await asyncio.to_thread(lambda batch: list(map(self._fragment, batch)), entries)

    def _fragment(self, entry: CatalogEntry) -> Fragment:
        return Fragment(entry.package.package_id, entry.package.active, self._render(entry))


class CatalogCache:
    """Returns current catalogs, and reads and renders only what changed.

    All catalogs together take at most `memory` bytes. A catalog that does not fit alone is read for each response. So
    is every catalog while responses to slow clients hold as many bytes that the cache dropped.
    """

    def __init__(
        self,
        read_state: StateReader,
        read_entries: EntryReader[VersionName],
        render: Callable[[CatalogEntry], bytes],
        *,
        memory: int,
    ) -> None:
        self._reader = SnapshotReader(read_entries, render)
        self._memory = memory
        self._retained = RetainedBytes()
        self._snapshots = TenantCache(read_state, self._reader, max_size=memory, on_release=self._track)

    @property
    def size(self) -> int:
        """The bytes of all cached catalogs."""
        return self._snapshots.size

    @property
    def count(self) -> int:
        return self._snapshots.count

    async def check(self, tenant_id: str) -> RevisionCheck[CatalogState]:
        """Return the catalog's state: it includes every change that was answered before this call."""
        return await self._snapshots.check(tenant_id)

    async def body(
        self, tenant_id: str, check: RevisionCheck[CatalogState], view: View, encoding: Encoding
    ) -> CatalogBody | None:
        """Return the catalog as it was at the check, or later; None if memory has no room for it."""
        if self._snapshots.is_too_large(tenant_id) or self._retained.size > self._memory:
            return None
        async with self._snapshots.lock(tenant_id):
            snapshot = await self._snapshots.get(tenant_id, check)
            if snapshot is None:
                return None
            encoding = await self._pack(tenant_id, snapshot, view, encoding)
        if view.hidden:
            return await self._copy(snapshot, view, encoding)
        return CatalogBody(snapshot.answer(view, encoding), encoding, snapshot)

    async def stream(self, tenant_id: str, view: View) -> AsyncIterator[bytes]:
        """Yield the catalog as plain JSON, without the cache."""
        size, separator = 0, b"["
        async for fragments in self._reader.fragments(tenant_id):
            size += Segment(fragments).size
            shown = [
                fragment.text
                for fragment in fragments
                if (fragment.active or view.include_disabled) and fragment.package_id not in view.hidden
            ]
            if shown:
                yield separator + b",".join(shown)
                separator = b","
        yield b"[]" if separator == b"[" else b"]"
        self._snapshots.set_measured_size(tenant_id, size)

    async def _pack(self, tenant_id: str, snapshot: Snapshot, view: View, encoding: Encoding) -> Encoding:
        """Prepare a view in the encoding, or in plain JSON if there is no room. Return the encoding."""
        missing = snapshot.lacking(view, encoding)
        if missing and encoding.name and sum(segment.length for segment in missing) > self._memory - snapshot.size:
            encoding = PLAIN
            missing = snapshot.lacking(view, encoding)
        for segment in missing:
            await asyncio.to_thread(segment.part, View(view.include_disabled), encoding)
        if missing:
            self._snapshots.recount(tenant_id, snapshot)
        return encoding

    async def _copy(self, snapshot: Snapshot, view: View, encoding: Encoding) -> CatalogBody | None:
        """Return a view of one caller; the segments with hidden packages are copied."""
        size = await asyncio.to_thread(snapshot.copied, view)
        if self._retained.size + size > self._memory:
            return None
        owner = snapshot, self._retained.copy(size)
        return CatalogBody(await asyncio.to_thread(snapshot.answer, view, encoding), encoding, owner)

    def _track(self, old: Snapshot, new: Snapshot | None) -> None:
        self._retained.track(set(old.segments) - set(new.segments if new else ()))
