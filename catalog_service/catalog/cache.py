"""The catalogs as they are answered, kept by tenant within a bound of memory; see `snapshot` and `revisions`."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from catalog_service.catalog.compression import PLAIN, Encoding
from catalog_service.catalog.memory_usage import RetainedBytes
from catalog_service.catalog.reader import CatalogEntry
from catalog_service.catalog.snapshot import Fragment, Segment, Snapshot, View
from catalog_service.revisions.model import Look, Standing
from common.concurrency.single_flight import SingleFlight

TENANTS = 10_000  # whose catalogs are kept, however small


class Revisions(Protocol):
    async def standing(self, tenant_id: str, known: str) -> Standing:
        """Where a catalog stands; without the latest changes where that is at the revision `known`."""


class EntryReader(Protocol):
    def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]: ...


@dataclass(frozen=True, eq=False)
class CatalogBody:
    """A catalog as a JSON array, in blocks; plain where there was no room for another encoding.

    What the blocks are of is there, and counted, for as long as the answer is.
    """

    blocks: Sequence[bytes]
    encoding: Encoding
    of: object

    @property
    def length(self) -> int:
        return sum(map(len, self.blocks))


class _Kept:
    """What is kept of a tenant: the snapshot as it was found at the look `seen`."""

    def __init__(self, look: Callable[["_Kept"], Awaitable[Look]]) -> None:
        self.looks = SingleFlight(lambda: look(self))
        self.seen = 0
        self.snapshot: Snapshot | None = None
        self.size = 0
        self.too_large = False
        self.lock = asyncio.Lock()


class _TooLarge(Exception):
    pass


class Snapshots:
    """Gives catalogs as they are now, and reads and renders of them only what has changed.

    `memory` is how many bytes all of them may take together: the tenant that nobody asked for longest is dropped first,
    and a catalog that does not fit alone is read for each answer. So is every catalog while answers that are not sent
    yet, because their readers are slow, hold as much again of what is kept no more.
    """

    def __init__(
        self, revisions: Revisions, entries: EntryReader, render: Callable[[CatalogEntry], bytes], *, memory: int
    ) -> None:
        self._revisions = revisions
        self._entries = entries
        self._render = render
        self._memory = memory
        self._turns = count(1)
        self._tenants: OrderedDict[str, _Kept] = OrderedDict()
        self._held = RetainedBytes()
        self._reading = asyncio.Lock()  # Only one catalog at a time takes memory that is not counted yet.

    @property
    def size(self) -> int:
        """The bytes that all kept catalogs take."""
        return sum(kept.size for kept in self._tenants.values())

    @property
    def count(self) -> int:
        """How many catalogs are kept."""
        return sum(kept.snapshot is not None for kept in self._tenants.values())

    async def look(self, tenant_id: str) -> Look:
        """Where the catalog stands now: every change that was answered before is in it."""
        return await self._kept(tenant_id).looks.run()

    async def answer(self, tenant_id: str, look: Look, view: View, encoding: Encoding) -> CatalogBody | None:
        """The catalog as it was at this look, or later; None where there is no room for it in memory."""
        kept = self._kept(tenant_id)
        if kept.too_large or self._held.size > self._memory:
            return None
        async with kept.lock:
            try:
                snapshot = await self._at(look, tenant_id, kept)
            except _TooLarge:
                kept.too_large, kept.size = True, 0
                return None
            lacking = snapshot.lacking(view, encoding)
            if encoding.name and sum(segment.length for segment in lacking) > self._memory - kept.size:
                encoding = PLAIN
                lacking = snapshot.lacking(view, encoding)
            for segment in lacking:
                await asyncio.to_thread(segment.part, View(view.include_disabled), encoding)
            if lacking and kept.snapshot is snapshot:
                self._make_room(kept, snapshot.size)
        if view.hidden:
            return await self._copy(snapshot, view, encoding)
        return CatalogBody(snapshot.answer(view, encoding), encoding, snapshot)

    async def _copy(self, snapshot: Snapshot, view: View, encoding: Encoding) -> CatalogBody | None:
        """A view of one caller's own: what surrounds the hidden packages is copied."""
        size = await asyncio.to_thread(snapshot.copied, view)
        if self._held.size + size > self._memory:
            return None
        of = snapshot, self._held.copy(size)
        return CatalogBody(await asyncio.to_thread(snapshot.answer, view, encoding), encoding, of)

    async def stream(self, tenant_id: str, view: View) -> AsyncIterator[bytes]:
        """The same as plain JSON, read from the database while it is sent."""
        size, comma = 0, b"["
        async for entries in self._entries.read(tenant_id):
            fragments = await asyncio.to_thread(self._rendered, entries)
            size += Segment(fragments).size
            shown = [
                fragment.text
                for fragment in fragments
                if (fragment.active or view.include_disabled) and fragment.package_id not in view.hidden
            ]
            if shown:
                yield comma + b",".join(shown)
                comma = b","
        yield b"[]" if comma == b"[" else b"]"
        self._kept(tenant_id).too_large = size > self._memory

    def _kept(self, tenant_id: str) -> _Kept:
        if tenant_id not in self._tenants:
            self._tenants[tenant_id] = _Kept(partial(self._look, tenant_id))
            if len(self._tenants) > TENANTS:
                _, longest_ago = self._tenants.popitem(last=False)
                self._drop(longest_ago)
        self._tenants.move_to_end(tenant_id)
        return self._tenants[tenant_id]

    async def _look(self, tenant_id: str, kept: _Kept) -> Look:
        turn, known = next(self._turns), kept.snapshot.revision if kept.snapshot else ""
        return Look(turn, await self._revisions.standing(tenant_id, known))

    def _drop(self, kept: _Kept) -> None:
        if kept.snapshot is not None:
            self._held.track(kept.snapshot.segments)
        kept.snapshot, kept.size = None, 0

    async def _at(self, look: Look, tenant_id: str, kept: _Kept) -> Snapshot:
        """The catalog as it was at a look, or at a later one that was faster."""
        held, standing = kept.snapshot, look.standing
        if held is not None and kept.seen >= look.turn:
            return held
        changed = standing.since(held.revision) if held else None
        if held is None or changed is None:
            self._drop(kept)
            snapshot = Snapshot(standing.revision, await self._read(tenant_id, kept))
        elif changed:
            changes: dict[str, Fragment | None] = dict.fromkeys(changed)
            async for entries in self._entries.read(tenant_id, changed):
                rendered = await asyncio.to_thread(self._rendered, entries)
                changes |= {fragment.package_id: fragment for fragment in rendered}
            snapshot = await asyncio.to_thread(held.replaced, standing.revision, changes)
            if snapshot.size > self._memory:  # Without its compressed forms it may still fit.
                self._drop(kept)
                snapshot = Snapshot(standing.revision, await self._read(tenant_id, kept))
        else:
            kept.seen = look.turn
            return held
        if held is not None:
            self._held.track(set(held.segments) - set(snapshot.segments))
        kept.snapshot, kept.seen = snapshot, look.turn
        self._make_room(kept, snapshot.size)
        return snapshot

    async def _read(self, tenant_id: str, kept: _Kept) -> Sequence[Segment]:
        """All of a catalog, in segments. Raises _TooLarge."""
        found: list[Segment] = []
        size = 0
        async with self._reading:
            async for entries in self._entries.read(tenant_id):
                segment = await asyncio.to_thread(lambda read: Segment(self._rendered(read)), entries)
                found.append(segment)
                size += segment.size
                if size > self._memory:
                    raise _TooLarge
                self._make_room(kept, size)
        return found

    def _make_room(self, kept: _Kept, size: int) -> None:
        """Let a catalog take this much, and drop others, those that were asked for longest ago first."""
        kept.size = size
        excess = self.size - self._memory
        for other in self._tenants.values():
            if excess <= 0:
                return
            if other is not kept:
                excess -= other.size
                self._drop(other)

    def _rendered(self, entries: Sequence[CatalogEntry]) -> list[Fragment]:
        return [Fragment(entry.package.package_id, entry.package.active, self._render(entry)) for entry in entries]
