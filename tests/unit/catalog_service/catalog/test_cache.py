"""The catalog cache: snapshots replace changed packages only, within a memory limit."""

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service import views
from catalog_service.catalog.cache import CatalogBody, CatalogCache
from catalog_service.catalog.compression import PLAIN, Gzip, Part
from catalog_service.catalog.reader import CatalogEntry
from catalog_service.catalog.snapshot import SEGMENT, Fragment, Segment, Snapshot, View
from catalog_service.model.packages import Package
from catalog_service.revisions.model import CatalogState, Change
from tests.support.tables import each
from tests.support.wait import until

GZIP = Gzip()
ALL, ACTIVE = View(include_disabled=True), View(include_disabled=False)
CHANGES = st.dictionaries(
    st.integers(0, 2000).map("{:04}".format), st.none() | st.tuples(st.booleans(), st.integers(0, 9)), max_size=40
)


def fragment(package_id: str, active: bool = True, number: int = 0) -> Fragment:
    return Fragment(package_id, active, json.dumps([package_id, number]).encode())


def snapshot(packages: int) -> Snapshot:
    return Snapshot("").replaced("0", {f"{number:04}": fragment(f"{number:04}") for number in range(packages)})


def shown(kept: Snapshot, view: View) -> list[str]:
    """The ids that a view lists; the same in each encoding."""
    plain = b"".join(kept.answer(view, PLAIN))
    assert gzip.decompress(b"".join(kept.answer(view, GZIP))) == plain
    return [package_id for package_id, _ in json.loads(plain)]


@settings(max_examples=30)
@given(first=CHANGES, second=CHANGES)
def test_changes_lead_to_what_a_fresh_rendering_gives(
    first: Mapping[str, tuple[bool, int] | None], second: Mapping[str, tuple[bool, int] | None]
) -> None:
    kept, expected = snapshot(600), {f"{number:04}": fragment(f"{number:04}") for number in range(600)}
    for changes in (first, second):
        fragments = {
            package_id: fragment(package_id, *values) if values else None for package_id, values in changes.items()
        }
        shown(kept, ACTIVE)  # what was joined before is not to be given again
        kept = kept.replaced("", fragments)
        expected = {package_id: one for package_id, one in {**expected, **fragments}.items() if one}

    everything = [one for segment in kept.segments for one in segment.fragments()]
    assert everything == [one for _, one in sorted(expected.items())]
    assert all(0 < len(segment.ids) < 2 * SEGMENT for segment in kept.segments)
    assert shown(kept, ALL) == sorted(expected)
    assert shown(kept, ACTIVE) == sorted(package_id for package_id, one in expected.items() if one.active)


@each("packages", [1000, 10_000])
def test_a_change_renders_one_segment_anew_at_any_size(packages: int) -> None:
    before = snapshot(packages)
    before.answer(ALL, GZIP)

    after = before.replaced("1", {"0500": fragment("0500", number=1)})

    assert len(set(after.segments) - set(before.segments)) == 1
    assert len(after.lacking(ALL, GZIP)) == 1
    assert shown(after, ALL) == shown(before, ALL)


def test_a_package_announced_before_it_exists_appears_in_the_catalog() -> None:
    announced = Snapshot("").replaced("1", {"0001": None})

    there = announced.replaced("2", {"0001": fragment("0001")})

    assert (shown(announced, ALL), shown(there, ALL)) == ([], ["0001"])


def test_a_change_that_changes_nothing_renders_nothing_anew() -> None:
    before = snapshot(1000)
    joined = before.answer(ALL, PLAIN)

    after = before.replaced("1", {"0500": fragment("0500"), "gone": None})

    assert after.segments == before.segments
    assert after.answer(ALL, PLAIN) is joined


class Counted(Gzip):
    """Counts what it compresses."""

    def __init__(self) -> None:
        self.packed = 0

    def pack(self, text: bytes) -> Part:
        self.packed += 1
        return super().pack(text)


def test_what_is_hidden_is_left_out_and_nothing_is_compressed_for_it() -> None:
    kept = snapshot(1000).replaced("1", {"0001": fragment("0001", active=False)})
    expected = [f"{number:04}" for number in range(1000) if number not in {1, 7, 999}]
    hidden = frozenset(["0007", "0999", "unknown"])

    assert shown(kept, View(include_disabled=False, hidden=hidden)) == expected
    counted = Counted()
    snapshot(1000).answer(View(include_disabled=True, hidden=hidden), counted)
    assert counted.packed == 2  # of four: nothing is hidden in these


def test_a_catalog_of_which_nothing_may_be_seen_is_empty() -> None:
    everything = frozenset(f"{number:04}" for number in range(300))

    assert shown(snapshot(300), View(include_disabled=True, hidden=everything)) == []
    assert shown(snapshot(0), ALL) == []


@each(
    ("known", "changed"),
    [("3", {"open"}), ("2", {"c", "open"}), ("1", {"a", "c", "open"}), ("0", None), ("", None)],
)
def test_changes_since_one_of_the_latest_revisions_are_known(known: str, changed: set[str] | None) -> None:
    state = CatalogState("3", [Change("1", "b"), Change("2", "a"), Change("3", "c")], frozenset(["open"]))

    assert state.since(known) == changed


class Revisions:
    """A database with a new revision for each query, and one package that every change concerns."""

    def __init__(self, text: str = "") -> None:
        self.number = 0
        self.text = text
        self.active = True
        self.reads: list[object] = []
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def state(self, tenant_id: str, known: str) -> CatalogState:
        self.number += 1
        state = CatalogState(str(self.number), [Change(str(number), "a") for number in range(self.number + 1)])
        self.asked.set()
        await self.go_on.wait()
        return state

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]:
        self.reads.append(package_ids)
        yield [CatalogEntry(Package("a", "", f"{tenant_id} {self.number}", self.text, active=self.active), [])]


async def test_a_request_during_a_query_waits_for_the_next_query() -> None:
    revisions = Revisions()
    catalogs = CatalogCache(revisions, revisions, views.rendered_package, memory=10_000)
    first = asyncio.create_task(catalogs.check("acme"))
    await revisions.asked.wait()
    late = [asyncio.create_task(catalogs.check("acme")) for _ in range(5)]
    await asyncio.sleep(0)
    revisions.go_on.set()

    assert (await first).state.revision == "1"
    assert [(await check).state.revision for check in late] == ["2"] * 5


async def test_a_check_older_than_the_cached_value_reads_nothing() -> None:
    revisions = Revisions()
    catalogs = CatalogCache(revisions, revisions, views.rendered_package, memory=10_000)
    revisions.go_on.set()
    first, second, third = [await catalogs.check("acme") for _ in range(3)]

    answers = [await catalogs.body("acme", check, ALL, PLAIN) for check in (first, third, second)]

    assert revisions.reads == [None, {"a"}]
    assert all(answer and b"acme 3" in b"".join(answer.blocks) for answer in answers)


@pytest.fixture
def large() -> Revisions:
    """Catalogs of one package of some 3,000 bytes."""
    revisions = Revisions("x" * 3000)
    revisions.go_on.set()
    return revisions


def memory_of(revisions: Revisions) -> CatalogCache:
    return CatalogCache(revisions, revisions, views.rendered_package, memory=10_000)


async def read(catalogs: CatalogCache, view: View = ALL, tenant_id: str = "acme") -> CatalogBody | None:
    return await catalogs.body(tenant_id, await catalogs.check(tenant_id), view, PLAIN)


async def nothing_is_retained(catalogs: CatalogCache) -> bool:
    return catalogs._retained.size == 0


async def until_answered(ask: Callable[[], Awaitable[CatalogBody | None]]) -> None:
    """Ask until there is room: a thread keeps what it worked on for a moment after its result is there."""

    async def is_answered() -> bool:
        return await ask() is not None

    await until(is_answered)


async def test_memory_of_old_catalogs_for_slow_clients_is_bounded(large: Revisions) -> None:
    catalogs = memory_of(large)

    slow = [await read(catalogs) for _ in range(20)]

    assert [answer is not None for answer in slow] == [True] * 4 + [False] * 16  # Three of before are too many.
    assert catalogs.size <= 10_000
    slow.clear()
    for _ in range(20):
        await until_answered(lambda: read(catalogs))


async def test_memory_of_copies_for_slow_clients_is_bounded(large: Revisions) -> None:
    catalogs, view = memory_of(large), View(include_disabled=True, hidden=frozenset("a"))
    await read(catalogs)
    check = await catalogs.check("acme")
    await catalogs.body("acme", check, ALL, PLAIN)
    await until(partial(nothing_is_retained, catalogs))

    slow = [await catalogs.body("acme", check, view, PLAIN) for _ in range(20)]

    assert [answer is not None for answer in slow] == [True] * 3 + [False] * 17
    slow.clear()
    await until_answered(lambda: catalogs.body("acme", check, view, PLAIN))


async def test_tenants_without_recent_requests_are_removed(large: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.caching.tenant_cache.MAX_TENANTS", 3)
    catalogs = memory_of(large)
    before = await catalogs.check("acme")
    for tenant_id in ("one", "two", "three", "four"):
        await read(catalogs, tenant_id=tenant_id)

    assert len(catalogs._snapshots._entries) == 3
    for check in (before, await catalogs.check("acme")):  # A removed tenant gets the current catalog.
        answer = await catalogs.body("acme", check, ALL, PLAIN)
        assert answer
        assert b"acme 6" in b"".join(answer.blocks)


async def test_what_is_inactive_is_left_out_on_a_thread(large: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(segment: Segment, hidden: Set[str]) -> bytes:
        threads.append(threading.current_thread())
        return b""

    monkeypatch.setattr(Segment, "_without", watched)
    monkeypatch.setattr(large, "active", False)

    assert await read(memory_of(large), ACTIVE)

    assert threads
    assert threading.main_thread() not in threads
