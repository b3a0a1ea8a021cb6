"""One package with all that its versions are, by an id that may be spelled otherwise."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from catalog_service.entries import WholeEntry
from catalog_service.winget.fields import Field
from catalog_service.winget.matching import Match, MatchType
from catalog_service.winget.requests import Search
from catalog_service.winget.searches import Searches


class EntryReader(Protocol):
    def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[WholeEntry]]: ...


class SourceEntries:
    """Reads packages as they are now."""

    def __init__(self, entries: EntryReader, searches: Searches) -> None:
        self._entries = entries
        self._searches = searches

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
                return entries[0]
        return None
