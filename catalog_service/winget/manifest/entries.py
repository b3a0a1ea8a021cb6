"""One package with its logo and all that its versions are, by an id that may be spelled otherwise."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from catalog_service.catalog.reader import Entry, WholeEntry
from catalog_service.winget.search.fields import Field
from catalog_service.winget.search.matching import Match, MatchType
from catalog_service.winget.search.requests import Search
from catalog_service.winget.search.searches import Searches


class EntryReader(Protocol):
    def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[WholeEntry]]: ...


class LogoReader(Protocol):
    async def logos(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, bytes]: ...


class SourceEntries:
    """Reads packages as they are now."""

    def __init__(self, entries: EntryReader, searches: Searches, logos: LogoReader) -> None:
        self._entries = entries
        self._searches = searches
        self._logos = logos

    async def find(self, tenant_id: str, package_id: str, hidden: frozenset[str]) -> WholeEntry | None:
        """The package of this id, else one whose id differs in letter case only, if there is one to be seen."""
        entry = await self._read(tenant_id, package_id, hidden)
        if entry is None:
            spelled = Match(frozenset([Field.IDENTIFIER]), package_id, MatchType.CASE_INSENSITIVE)
            for record in (await self._searches.find(tenant_id, Search((spelled,), page=1), hidden)).records:
                entry = entry or await self._read(tenant_id, record.package_id, hidden)
        return entry

    async def _read(self, tenant_id: str, package_id: str, hidden: frozenset[str]) -> WholeEntry | None:
        if package_id not in hidden:
            async for entries in self._entries.read(tenant_id, [package_id]):
                return await self._with_logo(tenant_id, entries[0])
        return None

    async def _with_logo(self, tenant_id: str, entry: WholeEntry) -> WholeEntry:
        package = entry.package.package
        logos = await self._logos.logos(tenant_id, [package.package_id])
        package = replace(package, logo=logos.get(package.package_id, b""))
        return Entry(replace(entry.package, package=package), entry.names)
