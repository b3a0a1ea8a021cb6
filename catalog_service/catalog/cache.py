"""The catalogs as JSON, cached by tenant."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from catalog_service.catalog.compression import PLAIN, Encoding
from catalog_service.catalog.reader import CatalogEntry, EntryReader, RingReader
from catalog_service.catalog.revision_store import CatalogState, StateReader
from catalog_service.catalog.snapshot import (
    CatalogFiles,
    Fragment,
    RetainedBytes,
    Segment,
    Snapshot,
    View,
    segment_size,
)
from catalog_service.model.releases import known_ring
from catalog_service.model.versions import VersionName
from common.caching import RevisionCheck, TenantCache, TooLarge
from common.http.zero_copy.sources import Block
from common.telemetry import log


@dataclass(frozen=True, eq=False)
class CatalogBody:
    """A catalog as a JSON array, in blocks; plain if there was no room for another encoding.

    `owner` keeps the files of the blocks open, and their memory counted, while the body exists.
    """

    blocks: Sequence[Block]
    encoding: Encoding
    owner: object

    @property
    def length(self) -> int:
        return sum(map(len, self.blocks))


@dataclass(eq=False)
class SnapshotReader:
    """Reads catalogs and renders them to files. `read_all` and `update` raise TooLarge if the disk has no room."""

    read_entries: EntryReader[VersionName]
    read_rings: RingReader
    render: Callable[[CatalogEntry], bytes]
    files: CatalogFiles

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> Snapshot:
        size, segments = 0, []
        rings = await self.read_rings(tenant_id)
        async for fragments in self.fragments(tenant_id, rings):
            with _full_disk_as_too_large():
                segments.append(await asyncio.to_thread(Segment, self.files, fragments))
            size += segments[-1].size
            reserve(size)
        return Snapshot(revision, self.files, segments, rings)

    async def update(self, tenant_id: str, value: Snapshot, revision: str, changed: Set[str]) -> Snapshot:
        changes: dict[str, list[Fragment]] = {package_id: [] for package_id in changed}
        # A change of the rings changes every package, so these are current.
        async for fragments in self.fragments(tenant_id, value.rings, changed):
            for fragment in fragments:
                changes[fragment.package_id].append(fragment)
        with _full_disk_as_too_large():
            return await asyncio.to_thread(value.replaced, revision, changes)

    async def fragments(
        self, tenant_id: str, rings: Sequence[str], package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[Fragment]]:
        async for entries in self.read_entries(tenant_id, package_ids):
            yield await asyncio.to_thread(self._fragments, rings, entries)

    def _fragments(self, rings: Sequence[str], entries: Sequence[CatalogEntry]) -> Sequence[Fragment]:
        return [
            Fragment(entry.package.package_id, entry.package.active, text, seen_by)
            for entry in entries
            for text, seen_by in entry.rendered(rings, self.render)
        ]


@contextmanager
def _full_disk_as_too_large() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.warning("catalog_not_stored", error=str(error))
        raise TooLarge from error


class CatalogCache:
    """Returns current catalogs, and reads and renders only what changed.

    The files of all catalogs together take at most `disk` bytes. A catalog that does not fit alone is read for each
    response. So is every catalog while responses to slow clients hold as many bytes that the cache dropped.
    Compressed responses that leave out hidden packages take at most `memory` bytes.
    """

    def __init__(
        self,
        read_state: StateReader,
        read_entries: EntryReader[VersionName],
        read_rings: RingReader,
        render: Callable[[CatalogEntry], bytes],
        *,
        disk: int,
        memory: int,
    ) -> None:
        self._files = CatalogFiles(disk)
        self._reader = SnapshotReader(read_entries, read_rings, render, self._files)
        self._memory = memory
        self._retained = RetainedBytes()
        self._snapshots = TenantCache(read_state, self._reader, max_size=disk, on_release=self._track)

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
        """Return the catalog as it was at the check, or later; None if there is no room for it."""
        if self._snapshots.is_too_large(tenant_id) or self._retained.size > self._files.limit:
            return None
        async with self._snapshots.lock(tenant_id):
            snapshot = await self._snapshots.get(tenant_id, check)
            if snapshot is None:
                return None
            view = replace(view, ring=known_ring(view.ring, snapshot.rings))
            copied = await asyncio.to_thread(snapshot.copied, view, encoding) if view.hidden else 0
            if self._retained.copied + copied > self._memory:
                encoding, copied = PLAIN, 0
            owner = snapshot, self._retained.copy(copied)
            encoding = await self._pack(tenant_id, snapshot, view, encoding)
        if view.hidden:
            return CatalogBody(await asyncio.to_thread(snapshot.answer, view, encoding), encoding, owner)
        return CatalogBody(snapshot.answer(view, encoding), encoding, owner)

    async def stream(self, tenant_id: str, view: View) -> AsyncIterator[bytes]:
        """Yield the catalog as plain JSON, without the cache."""
        size, separator = 0, b"["
        rings = await self._reader.read_rings(tenant_id)
        view = replace(view, ring=known_ring(view.ring, rings))
        async for fragments in self._reader.fragments(tenant_id, rings):
            size += await asyncio.to_thread(segment_size, self._files, fragments)
            shown = [item.text for item in fragments if view.shows(item.package_id, item.active, item.rings)]
            if shown:
                yield separator + b",".join(shown)
                separator = b","
        yield b"[]" if separator == b"[" else b"]"
        self._snapshots.set_measured_size(tenant_id, size)

    async def _pack(
        self, tenant_id: str, snapshot: Snapshot, view: View, encoding: Encoding, *, has_room: bool = True
    ) -> Encoding:
        """Prepare a view in the encoding, or in plain JSON if there is no room. Return the encoding.

        Raises OSError if the files cannot be read.
        """
        missing = snapshot.lacking(view, encoding)
        needed = sum(self._files.size(segment.length) for segment in missing)
        has_room = has_room and needed <= self._files.limit - snapshot.size
        if encoding is not PLAIN and not has_room:
            encoding = PLAIN
            missing = snapshot.lacking(view, encoding)
        try:
            for segment in missing:
                part = partial(segment.part, replace(view, hidden=frozenset()), encoding, has_room=has_room)
                await asyncio.to_thread(part)
        except OSError as error:
            if not has_room:
                raise
            log.warning("catalog_not_stored", error=str(error))
            return await self._pack(tenant_id, snapshot, view, PLAIN, has_room=False)
        finally:
            if missing:
                self._snapshots.recount(tenant_id, snapshot)
        return encoding

    def _track(self, old: Snapshot, new: Snapshot | None) -> None:
        self._retained.track(set(old.segments) - set(new.segments if new else ()))
