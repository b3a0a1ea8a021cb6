"""Reads one package with its logo and versions; letter case of its id does not matter."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from catalog_service.catalog.reader import Entry, EntryReader, WholeEntry
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
    ) -> None:
        self._read_entries = read_entries
        self._search = search
        self._read_logos = read_logos

    async def find(self, tenant_id: str, package_id: str, hidden: frozenset[str]) -> WholeEntry | None:
        """Return the visible package of this id, else one whose id differs in letter case only."""
        entry = await self._read(tenant_id, package_id, hidden)
        if entry is None:
            same_id = Match(frozenset([Field.IDENTIFIER]), package_id, MatchType.CASE_INSENSITIVE)
            for record in (await self._search.find(tenant_id, Search((same_id,), page=1), hidden)).records:
                entry = entry or await self._read(tenant_id, record.package_id, hidden)
        return entry

    async def _read(self, tenant_id: str, package_id: str, hidden: frozenset[str]) -> WholeEntry | None:
        if package_id not in hidden:
            async for (entry,) in self._read_entries(tenant_id, [package_id]):
                logos = await self._read_logos(tenant_id, [package_id])
                return Entry(replace(entry.package, logo=logos.get(package_id, b"")), entry.names)
        return None
