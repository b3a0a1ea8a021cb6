"""Reads one package with its logo and versions; letter case of its id does not matter."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from catalog_service.catalog.reader import EntryReader, RingReader, WholeEntry
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.search.fields import Field
from catalog_service.winget.search.matching import Match, MatchType
from catalog_service.winget.search.requests import Search
from catalog_service.winget.search.service import WingetSearch


class SourceEntries:
    """Reads current packages."""

    def __init__(
        self,
        read_entries: EntryReader[PackageVersion],
        search: WingetSearch,
        read_logos: Callable[[str, Collection[str]], Awaitable[Mapping[str, bytes]]],
        read_rings: RingReader,
    ) -> None:
        self._read_entries = read_entries
        self._read_rings = read_rings
        self._search = search
        self._read_logos = read_logos

    async def find(self, tenant_id: str, package_id: str, ring: str, hidden: frozenset[str]) -> WholeEntry | None:
        """Return the package of this id that a ring sees, else one whose id differs in letter case only."""
        entry = await self._read(tenant_id, package_id, ring, hidden)
        if entry is None:
            same_id = Match(frozenset([Field.IDENTIFIER]), package_id, MatchType.CASE_INSENSITIVE)
            for record in (await self._search.find(tenant_id, Search((same_id,), page=1), ring, hidden)).records:
                entry = entry or await self._read(tenant_id, record.package_id, ring, hidden)
        return entry

    async def _read(self, tenant_id: str, package_id: str, ring: str, hidden: frozenset[str]) -> WholeEntry | None:
        if package_id in hidden:
            return None
        async for (entry,) in self._read_entries(tenant_id, [package_id]):
            is_staged = any(version.stage for version in entry.names)  # The rings do not matter to others.
            rings = await self._read_rings(tenant_id) if is_staged else ()
            if seen := entry.offered_to(ring, rings):
                logos = await self._read_logos(tenant_id, [package_id])
                return replace(seen, package=replace(seen.package, logo=logos.get(package_id, b"")))
        return None
