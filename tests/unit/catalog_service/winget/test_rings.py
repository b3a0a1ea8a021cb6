"""Searches by ring: a version that is not offered adds nothing that a ring can find."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service.model.releases import ReleaseStatus, Stage
from catalog_service.winget.contracts import installable_versions
from catalog_service.winget.index import Field
from catalog_service.winget.requests import Match, MatchType, Search
from catalog_service.winget.search import WingetSearch
from common.tenants import ALL_RINGS
from tests.support.samples.staged_catalogs import CALLER_RINGS, FIVE, PACKAGE_IDS, PACKAGES, RINGS, StagedCatalog
from tests.support.tables import each

HIDDEN = st.sets(PACKAGE_IDS, max_size=2).map(frozenset)
MEMORIES = (0, 1 << 20)  # without and with the cache
STEPS = st.one_of(
    st.tuples(st.just("put"), PACKAGE_IDS, PACKAGES),
    st.tuples(st.just("put"), PACKAGE_IDS, PACKAGES),
    st.tuples(st.just("remove"), PACKAGE_IDS),
    st.tuples(st.just("rings"), RINGS, st.booleans()),
    st.tuples(st.just("search"), CALLER_RINGS, HIDDEN, st.integers(1, 3)),
    st.tuples(st.just("search"), CALLER_RINGS, HIDDEN, st.integers(1, 3)),
)


def searches_of(staged: StagedCatalog) -> list[WingetSearch]:
    return [WingetSearch(staged.state, staged.read, staged.read_rings, memory=memory) for memory in MEMORIES]


async def found(
    searches: WingetSearch, ring: str, *filters: Match, hidden: frozenset[str] = frozenset(), page: int = 500
) -> dict[str, list[str]]:
    """The versions in all pages of a search, by package id."""
    results: dict[str, list[str]] = {}
    search = Search(filters=filters, page=page)
    while True:
        records = (await searches.find("acme", search, ring, hidden)).records
        for record in records[:page]:
            assert record.package_id not in results
            versions = orjson.loads(record.result_json)["Versions"]
            results[record.package_id] = sorted(version["PackageVersion"] for version in versions)
        if len(records) <= page:
            return results
        search = search.continued(search.token(records[page - 1].package_id))


def command(name: str) -> Match:
    return Match(frozenset([Field.COMMAND]), name, MatchType.EXACT)


async def follow(steps: Sequence[tuple[Any, ...]]) -> None:
    staged = StagedCatalog()
    all_searches = searches_of(staged)
    for kind, *values in steps:
        if kind != "search":
            staged.change(kind, *values)
            continue
        ring, hidden, page = values
        visible = {
            package_id: installable_versions(replace(staged.entries[package_id], names=versions))
            for package_id, versions in staged.seen_from(ring).items()
            if package_id not in hidden
        }
        expected = {package_id: sorted(versions) for package_id, versions in visible.items() if versions}
        commands = {
            (name, package_id)
            for package_id, versions in visible.items()
            for installers in versions.values()
            for version in installers
            for name in version.manifest.commands
        }
        for searches in all_searches:
            assert await found(searches, ring, hidden=hidden, page=page) == expected
            part = Match(frozenset([Field.COMMAND]), "run", MatchType.SUBSTRING)
            assert [*await found(searches, ring, part, hidden=hidden)] == sorted(expected)
            for entry in staged.entries.values():
                for name in (name for version in entry.names for name in version.manifest.commands):
                    matching = await found(searches, ring, command(name), hidden=hidden)
                    assert {(name, package_id) for package_id in matching} <= commands
                    assert len(matching) == sum(each_name == name for each_name, _ in commands)


@settings(max_examples=20)
@given(steps=st.lists(STEPS, min_size=10, max_size=30))
def test_each_ring_finds_the_plain_filter_of_all_entries(steps: Sequence[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("catalog_service.winget.index.SIZE", 2)
        asyncio.run(follow(steps))


@each("status", [ReleaseStatus.HELD, ReleaseStatus.ROLLED_BACK, ReleaseStatus.RETIRED])
async def test_values_of_a_withdrawn_version_find_nothing(status: ReleaseStatus) -> None:
    staged = StagedCatalog()
    staged.put("Acme.App00", ([(None, "stable"), (Stage((ALL_RINGS,), status), "stable")], True))
    _, withdrawn = staged.entries["Acme.App00"].names
    (name,) = withdrawn.manifest.commands
    code = Match(frozenset([Field.PRODUCT_CODE]), withdrawn.product_code.lower(), MatchType.CASE_INSENSITIVE)
    for searches in searches_of(staged):
        for match in (command(name), code):
            assert await found(searches, "", match) == {}
            assert await found(searches, ALL_RINGS, match) == {"Acme.App00": ["1.0", "1.1"]}


async def test_rings_that_find_the_same_share_the_memory() -> None:
    staged = StagedCatalog(rings=FIVE)
    for number in range(10):
        staged.put(f"Acme.App{number:02}", ([(None, "stable"), (None, "beta")], True))
    _, searches = searches_of(staged)
    await found(searches, "pilot")
    size = searches.size
    staged.put("Acme.App05", ([(None, "stable"), (Stage(("pilot",)), "beta")], True))

    assert len(await found(searches, "pilot")) == len(await found(searches, "late")) == 10
    assert searches.size == size  # A version in the channel beta is not in a search.

    staged.put("Acme.App05", ([(None, "stable"), (Stage(("broad",)), "stable")], True))
    for ring in (ALL_RINGS, *FIVE):
        await found(searches, ring)
    assert size < searches.size < 1.3 * size  # The package is in the index twice.
