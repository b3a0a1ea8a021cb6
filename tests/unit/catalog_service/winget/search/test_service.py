"""Searches of several tenants share memory and processor time, and stay correct."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

import pytest

from catalog_service.catalog.reader import WholeEntry
from catalog_service.revisions.model import CatalogState, Change
from catalog_service.winget.search.fields import Field
from catalog_service.winget.search.index import Index, IndexSegment
from catalog_service.winget.search.matching import Match, MatchType
from catalog_service.winget.search.requests import Search
from catalog_service.winget.search.service import UNCACHED_READS, WingetSearch
from tests.support.samples.winget_factories import make_entry, make_version


def entries_of(*package_ids: str) -> list[WholeEntry]:
    return [make_entry(package_id, make_version(package_id)) for package_id in package_ids]


@dataclass
class Catalogs:
    """The states and packages of catalogs.

    Reads of single packages, or of the catalog of the `slow` tenant, wait for `let_on`; `reading` counts them.
    """

    entries: dict[str, Sequence[WholeEntry]] = field(default_factory=dict)
    states: dict[str, CatalogState] = field(default_factory=dict)
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    slow: str = ""
    reading: int = 0

    async def state(self, tenant_id: str, known_revision: str) -> CatalogState:
        return self.states.get(tenant_id, CatalogState("1"))

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[WholeEntry]]:
        if package_ids is not None or tenant_id == self.slow:
            self.requested.set()
            self.reading += 1
            await self.release.wait()
            self.reading -= 1
        yield [
            entry for entry in self.entries[tenant_id] if package_ids is None or entry.package.package_id in package_ids
        ]


async def ids(searches: WingetSearch, tenant_id: str) -> list[str]:
    return [record.package_id for record in (await searches.find(tenant_id, Search(), frozenset())).records]


async def test_a_search_is_answered_while_its_index_is_replaced() -> None:
    catalogs = Catalogs({"one": entries_of("Acme.Editor"), "other": entries_of("Acme.Other", "Acme.Third")})
    alone = WingetSearch(catalogs.state, catalogs.read, memory=1 << 20)
    assert await ids(alone, "one") == ["Acme.Editor"]
    searches = WingetSearch(catalogs.state, catalogs.read, memory=alone.size * 5 // 2)  # not enough memory for both
    assert await ids(searches, "one") == ["Acme.Editor"]
    catalogs.entries["one"] = entries_of("Acme.Editor", "Acme.Later")
    catalogs.states["one"] = CatalogState("2", [Change("1", ""), Change("2", "Acme.Later")])
    renewing = asyncio.create_task(ids(searches, "one"))
    await catalogs.requested.wait()
    assert await ids(searches, "other") == ["Acme.Other", "Acme.Third"]
    catalogs.release.set()
    assert await renewing == ["Acme.Editor", "Acme.Later"]
    assert 0 < searches.size <= alone.size * 5 // 2


async def test_evicted_indexes_are_counted() -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other", "third")})
    alone = WingetSearch(catalogs.state, catalogs.read, memory=1 << 20)
    await ids(alone, "one")
    drops = 0

    def on_evict() -> None:
        nonlocal drops
        drops += 1

    searches = WingetSearch(catalogs.state, catalogs.read, memory=2 * alone.size, on_evict=on_evict)
    for tenant_id, expected in (("one", 0), ("other", 0), ("one", 0), ("third", 1), ("one", 1), ("other", 2)):
        assert await ids(searches, tenant_id) == ["Acme.Editor"]
        assert drops == expected
    assert searches.size == 2 * alone.size


async def test_a_removed_tenant_uses_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other")})
    searches = WingetSearch(catalogs.state, catalogs.read, memory=1 << 20)
    await ids(searches, "one")
    size = searches.size
    monkeypatch.setattr("common.caching.tenant_cache.MAX_TENANTS", 1)
    catalogs.entries["one"] = entries_of("Acme.Editor", "Acme.Later")
    catalogs.states["one"] = CatalogState("2", [Change("1", ""), Change("2", "Acme.Later")])
    renewing = asyncio.create_task(ids(searches, "one"))
    await catalogs.requested.wait()
    assert await ids(searches, "other") == ["Acme.Editor"]
    catalogs.release.set()
    assert await renewing == ["Acme.Editor", "Acme.Later"]
    assert searches.size == size


async def test_reading_a_huge_catalog_does_not_delay_other_tenants() -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other")})
    searches = WingetSearch(catalogs.state, catalogs.read, memory=0)
    for tenant_id in catalogs.entries:
        await ids(searches, tenant_id)
    catalogs.slow = "one"
    waiting = [asyncio.create_task(ids(searches, "one")) for _ in range(2 * UNCACHED_READS)]
    await catalogs.requested.wait()
    assert await ids(searches, "other") == ["Acme.Editor"]
    assert catalogs.reading == 1
    catalogs.release.set()
    assert await asyncio.gather(*waiting) == [["Acme.Editor"]] * 2 * UNCACHED_READS


async def test_an_unchanged_index_is_not_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs({"one": entries_of("Acme.Editor")})
    searches = WingetSearch(catalogs.state, catalogs.read, memory=1 << 20)
    await ids(searches, "one")
    monkeypatch.delattr(Index, "replaced")
    assert await ids(searches, "one") == ["Acme.Editor"]


async def test_other_tasks_run_between_two_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs({"one": entries_of("Acme.Editor")})
    searches = WingetSearch(catalogs.state, catalogs.read, memory=1 << 20)
    assert await ids(searches, "one") == ["Acme.Editor"]
    running: list[int] = []
    other_turns = 0

    def numbers_in(_: Match, segment: IndexSegment) -> set[int]:
        running.append(other_turns)
        time.sleep(0.006)
        return {0}

    monkeypatch.setattr(Match, "numbers_in", numbers_in)

    async def others() -> None:
        nonlocal other_turns
        while True:
            other_turns += 1
            await asyncio.sleep(0)

    matches = tuple(Match(frozenset([Field.TAG]), str(number), MatchType.SUBSTRING) for number in range(3))
    waiting = asyncio.create_task(others())
    assert len((await searches.find("one", Search(matches, matches), frozenset())).records) == 1
    waiting.cancel()
    assert len(set(running)) == 6
