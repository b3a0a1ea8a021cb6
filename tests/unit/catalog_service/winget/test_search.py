"""Searches of several tenants share memory and processor time, and stay correct."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog_service.catalog.reader import WholeEntry
from catalog_service.catalog.revision_store import CatalogState, Change
from catalog_service.winget.index import Field, Index
from catalog_service.winget.requests import Match, MatchType, Search
from catalog_service.winget.search import UNCACHED_READS, WingetSearch
from common.tenants import ALL_RINGS
from tests.support.samples.winget_factories import make_entry, make_version


def entries_of(*package_ids: str) -> list[WholeEntry]:
    return [make_entry(package_id, make_version(package_id)) for package_id in package_ids]


@dataclass
class Catalogs:
    """The states and packages of catalogs, by default of `one` with Acme.Editor.

    Reads of single packages, or of the catalog of the `slow` tenant, wait for `let_on`; `reading` counts them.
    """

    entries: dict[str, Sequence[WholeEntry]] = field(default_factory=lambda: {"one": entries_of("Acme.Editor")})
    states: dict[str, CatalogState] = field(default_factory=dict)
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    slow: str = ""
    reading: int = 0
    queries: int = 0

    def add_later(self) -> None:
        """Add Acme.Later to the catalog of `one`."""
        self.entries["one"] = entries_of("Acme.Editor", "Acme.Later")
        self.states["one"] = CatalogState("2", [Change("1", ""), Change("2", "Acme.Later")])

    async def state(self, tenant_id: str, known_revision: str) -> CatalogState:
        self.queries += 1
        return self.states.get(tenant_id, CatalogState("1"))

    async def rings(self, tenant_id: str) -> Sequence[str]:
        return ()

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


def searches_of(catalogs: Catalogs, memory: int = 1 << 20, **options: Any) -> WingetSearch:
    return WingetSearch(catalogs.state, catalogs.read, catalogs.rings, memory=memory, **options)


async def ids(searches: WingetSearch, tenant_id: str) -> list[str]:
    return [record.package_id for record in (await searches.find(tenant_id, Search(), ALL_RINGS, frozenset())).records]


async def test_a_search_is_answered_while_its_index_is_replaced() -> None:
    catalogs = Catalogs({"one": entries_of("Acme.Editor"), "other": entries_of("Acme.Other", "Acme.Third")})
    alone = searches_of(catalogs)
    assert await ids(alone, "one") == ["Acme.Editor"]
    # There is not enough memory for both.
    searches = searches_of(catalogs, memory=alone.size * 5 // 2)
    assert await ids(searches, "one") == ["Acme.Editor"]
    catalogs.add_later()
    renewing = asyncio.create_task(ids(searches, "one"))
    await catalogs.requested.wait()
    assert await ids(searches, "other") == ["Acme.Other", "Acme.Third"]
    catalogs.release.set()
    assert await renewing == ["Acme.Editor", "Acme.Later"]
    assert 0 < searches.size <= alone.size * 5 // 2


async def test_evicted_indexes_are_counted() -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other", "third")})
    alone = searches_of(catalogs)
    await ids(alone, "one")
    drops = 0

    def on_evict() -> None:
        nonlocal drops
        drops += 1

    searches = searches_of(catalogs, memory=2 * alone.size, on_evict=on_evict)
    for tenant_id, expected in (("one", 0), ("other", 0), ("one", 0), ("third", 1), ("one", 1), ("other", 2)):
        assert await ids(searches, tenant_id) == ["Acme.Editor"]
        assert drops == expected
    assert searches.size == 2 * alone.size


async def test_a_removed_tenant_uses_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other")})
    searches = searches_of(catalogs)
    await ids(searches, "one")
    size = searches.size
    monkeypatch.setattr("common.caching.MAX_TENANTS", 1)
    catalogs.add_later()
    renewing = asyncio.create_task(ids(searches, "one"))
    await catalogs.requested.wait()
    assert await ids(searches, "other") == ["Acme.Editor"]
    catalogs.release.set()
    assert await renewing == ["Acme.Editor", "Acme.Later"]
    assert searches.size == size


async def test_reading_a_huge_catalog_does_not_delay_other_tenants() -> None:
    catalogs = Catalogs({name: entries_of("Acme.Editor") for name in ("one", "other")})
    searches = searches_of(catalogs, memory=0)
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
    catalogs = Catalogs()
    searches = searches_of(catalogs)
    await ids(searches, "one")
    monkeypatch.delattr(Index, "replaced")
    assert await ids(searches, "one") == ["Acme.Editor"]


async def find_at(searches: WingetSearch, tenant_version: str) -> list[str]:
    """The ids of all packages that a caller finds who read this version of the tenant."""
    result = await searches.find("one", Search(), ALL_RINGS, frozenset(), tenant_version=tenant_version)
    return [record.package_id for record in result.records]


async def test_searches_at_one_tenant_version_share_a_query() -> None:
    catalogs = Catalogs()
    searches = searches_of(catalogs)
    await ids(searches, "one")
    for queries, version in enumerate(["first", "second", "third"], start=2):
        assert [await find_at(searches, version) for _ in range(3)] == [["Acme.Editor"]] * 3
        assert catalogs.queries == queries
    assert [await ids(searches, "one") for _ in range(3)] == [["Acme.Editor"]] * 3
    assert catalogs.queries == 7


async def test_a_search_at_a_new_tenant_version_finds_the_change() -> None:
    catalogs = Catalogs()
    catalogs.release.set()
    searches = searches_of(catalogs)
    for _ in range(3):
        assert await find_at(searches, "first") == ["Acme.Editor"]
    catalogs.add_later()
    assert await find_at(searches, "second") == ["Acme.Editor", "Acme.Later"]


async def test_a_query_is_not_shared_during_a_change() -> None:
    catalogs = Catalogs()
    catalogs.release.set()
    searches = searches_of(catalogs)
    catalogs.states["one"] = CatalogState("1", changing_ids=frozenset(["Acme.Later"]))
    for _ in range(3):
        assert await find_at(searches, "first") == ["Acme.Editor"]
    catalogs.entries["one"] = entries_of("Acme.Editor", "Acme.Later")
    assert await find_at(searches, "first") == ["Acme.Editor", "Acme.Later"]


async def test_a_shared_query_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.caching.CHECK_MAX_AGE", 0)
    catalogs = Catalogs()
    searches = searches_of(catalogs)
    for queries in range(1, 4):
        assert await find_at(searches, "first") == ["Acme.Editor"]
        assert catalogs.queries == queries


async def test_other_tasks_run_between_two_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs()
    searches = searches_of(catalogs)
    assert await ids(searches, "one") == ["Acme.Editor"]
    running: list[int] = []
    other_turns = 0

    def first(number: int) -> int:
        running.append(other_turns)
        time.sleep(0.006)
        return number

    monkeypatch.setattr(Match, "finders", lambda *_: [first])

    async def others() -> None:
        nonlocal other_turns
        while True:
            other_turns += 1
            await asyncio.sleep(0)

    matches = tuple(Match(frozenset([Field.TAG]), str(number), MatchType.SUBSTRING) for number in range(3))
    waiting = asyncio.create_task(others())
    assert len((await searches.find("one", Search(matches, matches), ALL_RINGS, frozenset())).records) == 1
    waiting.cancel()
    assert len(set(running)) == 6
