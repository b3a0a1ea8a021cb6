"""The catalog cache: snapshots replace changed packages only, within a memory limit."""

import asyncio
import errno
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service.catalog.cache import CatalogBody, CatalogCache
from catalog_service.catalog.compression import PLAIN, Encoding, Gzip, Part, Zstd
from catalog_service.catalog.reader import CatalogEntry
from catalog_service.catalog.revision_store import CatalogState, Change
from catalog_service.catalog.routes import rendered_package
from catalog_service.catalog.snapshot import SEGMENT, CatalogFiles, Fragment, Segment, Snapshot, View
from catalog_service.model.packages import Package
from common.http.zero_copy.sources import FileRange, read_blocks
from common.tenants import ALL_RINGS
from tests.support.tables import each
from tests.support.wait import until

GZIP = Gzip()
FILES = CatalogFiles(1 << 30)
ALL, ACTIVE = View(include_disabled=True, ring=ALL_RINGS), View(include_disabled=False, ring=ALL_RINGS)
CHANGES = st.dictionaries(
    st.integers(0, 2000).map("{:04}".format), st.none() | st.tuples(st.booleans(), st.integers(0, 9)), max_size=40
)


def fragment(package_id: str, active: bool = True, number: int = 0) -> Fragment:
    return Fragment(package_id, active, json.dumps([package_id, number]).encode())


def snapshot(packages: int) -> Snapshot:
    return Snapshot("", FILES).replaced("0", {f"{number:04}": [fragment(f"{number:04}")] for number in range(packages)})


def listed_ids(catalog: Snapshot, view: View) -> list[str]:
    """The ids in a view; the same in each encoding."""
    plain = read_blocks(catalog.answer(view, PLAIN))
    assert gzip.decompress(read_blocks(catalog.answer(view, GZIP))) == plain
    return [package_id for package_id, _ in json.loads(plain)]


@settings(max_examples=15)
@given(first=CHANGES, second=CHANGES)
def test_changes_give_the_same_catalog_as_a_new_snapshot(
    first: Mapping[str, tuple[bool, int] | None], second: Mapping[str, tuple[bool, int] | None]
) -> None:
    catalog, expected = snapshot(600), {f"{number:04}": fragment(f"{number:04}") for number in range(600)}
    for changes in (first, second):
        fragments = {
            package_id: fragment(package_id, *values) if values else None for package_id, values in changes.items()
        }
        listed_ids(catalog, ACTIVE)  # Cached encodings of the previous snapshot must not be reused.
        catalog = catalog.replaced("", {name: [each] if each else [] for name, each in fragments.items()})
        expected = {
            package_id: fragment_of for package_id, fragment_of in {**expected, **fragments}.items() if fragment_of
        }

    everything = [fragment_of for segment in catalog.segments for fragment_of in segment.items()]
    assert everything == [fragment_of for _, fragment_of in sorted(expected.items())]
    assert all(0 < len(list(segment.items())) < 2 * SEGMENT for segment in catalog.segments)
    assert listed_ids(catalog, ALL) == sorted(expected)
    assert listed_ids(catalog, ACTIVE) == sorted(
        package_id for package_id, fragment_of in expected.items() if fragment_of.active
    )


@each("packages", [1000, 4000])
def test_a_change_renders_one_segment_in_a_catalog_of_any_size(packages: int) -> None:
    before = snapshot(packages)
    before.answer(ALL, GZIP)

    after = before.replaced("1", {"0500": [fragment("0500", number=1)]})

    assert len(set(after.segments) - set(before.segments)) == 1
    assert len(after.lacking(ALL, GZIP)) == 1
    assert listed_ids(after, ALL) == listed_ids(before, ALL)


def test_a_package_announced_before_it_exists_appears_in_the_catalog() -> None:
    announced = Snapshot("", FILES).replaced("1", {"0001": []})

    with_package = announced.replaced("2", {"0001": [fragment("0001")]})

    assert (listed_ids(announced, ALL), listed_ids(with_package, ALL)) == ([], ["0001"])


def test_a_change_without_effect_renders_nothing() -> None:
    before = snapshot(1000)
    joined = before.answer(ALL, PLAIN)

    after = before.replaced("1", {"0500": [fragment("0500")], "gone": []})

    assert after.segments == before.segments
    assert after.answer(ALL, PLAIN) is joined


class CountingEncoding(Gzip):
    """Counts what it compresses."""

    def __init__(self) -> None:
        self.packed = 0

    def pack(self, text: bytes) -> Part:
        self.packed += 1
        return super().pack(text)


def test_hidden_packages_are_omitted_without_new_compression() -> None:
    catalog = snapshot(1000).replaced("1", {"0001": [fragment("0001", active=False)]})
    expected = [f"{number:04}" for number in range(1000) if number not in {1, 7, 999}]
    hidden = frozenset(["0007", "0999", "unknown"])

    assert listed_ids(catalog, View(include_disabled=False, ring=ALL_RINGS, hidden=hidden)) == expected
    counting = CountingEncoding()
    snapshot(1000).answer(View(include_disabled=True, ring=ALL_RINGS, hidden=hidden), counting)
    assert counting.packed == 2  # of four: the others have no hidden package


def test_a_catalog_with_hidden_packages_only_is_empty() -> None:
    everything = frozenset(f"{number:04}" for number in range(300))

    assert listed_ids(snapshot(300), View(include_disabled=True, ring=ALL_RINGS, hidden=everything)) == []
    assert listed_ids(snapshot(0), ALL) == []


@each(
    ("since", "changed"),
    [("3", {"open"}), ("2", {"c", "open"}), ("1", {"a", "c", "open"}), ("0", None), ("", None)],
)
def test_changes_since_one_of_the_latest_revisions_are_known(since: str, changed: set[str] | None) -> None:
    state = CatalogState("3", [Change("1", "b"), Change("2", "a"), Change("3", "c")], frozenset(["open"]))

    assert state.since(since) == changed


class Revisions:
    """A database with a new revision for each query; each change concerns the same package."""

    def __init__(self, text: str = "") -> None:
        self.number = 0
        self.text = text
        self.active = True
        self.reads: list[object] = []
        self.requested, self.go_on = asyncio.Event(), asyncio.Event()

    async def state(self, tenant_id: str, known_revision: str) -> CatalogState:
        self.number += 1
        state = CatalogState(str(self.number), [Change(str(number), "a") for number in range(self.number + 1)])
        self.requested.set()
        await self.go_on.wait()
        return state

    async def rings(self, tenant_id: str) -> Sequence[str]:
        return ()

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]:
        self.reads.append(package_ids)
        yield [CatalogEntry(Package("a", "", f"{tenant_id} {self.number}", self.text, active=self.active), [])]


async def test_a_request_during_a_query_waits_for_the_next_query() -> None:
    revisions = Revisions()
    catalogs = cache_of(revisions)
    first = asyncio.create_task(catalogs.check("acme"))
    await revisions.requested.wait()
    late = [asyncio.create_task(catalogs.check("acme")) for _ in range(5)]
    await asyncio.sleep(0)
    revisions.go_on.set()

    assert (await first).state.revision == "1"
    assert [(await check).state.revision for check in late] == ["2"] * 5


async def test_a_check_older_than_the_cached_value_reads_nothing() -> None:
    revisions = Revisions()
    catalogs = cache_of(revisions)
    revisions.go_on.set()
    first, second, third = [await catalogs.check("acme") for _ in range(3)]

    answers = [await catalogs.body("acme", check, ALL, PLAIN) for check in (first, third, second)]

    assert revisions.reads == [None, {"a"}]
    assert all(answer and b"acme 3" in read_blocks(answer.blocks) for answer in answers)


@pytest.fixture
def large() -> Revisions:
    """Catalogs of one package of some 3,000 bytes."""
    revisions = Revisions("x" * 3000)
    revisions.go_on.set()
    return revisions


def cache_of(revisions: Revisions) -> CatalogCache:
    return CatalogCache(revisions.state, revisions.read, revisions.rings, rendered_package, disk=10_000, memory=10_000)


async def read(
    catalogs: CatalogCache, view: View = ALL, tenant_id: str = "acme", encoding: Encoding = PLAIN
) -> CatalogBody | None:
    return await catalogs.body(tenant_id, await catalogs.check(tenant_id), view, encoding)


async def nothing_is_retained(catalogs: CatalogCache) -> bool:
    return catalogs._retained.size == catalogs._retained.copied == 0


async def until_answered(ask: Callable[[], Awaitable[CatalogBody | None]]) -> None:
    """Repeat a request until there is room: a thread holds its data briefly after its result is available."""

    async def is_answered() -> bool:
        return await ask() is not None

    await until(is_answered)


async def test_disk_space_of_old_catalogs_for_slow_clients_is_bounded(large: Revisions) -> None:
    catalogs = cache_of(large)

    slow = [await read(catalogs) for _ in range(20)]

    # Three previous catalogs exceed the limit.
    assert [answer is not None for answer in slow] == [True] * 4 + [False] * 16
    assert catalogs.size <= 10_000
    slow.clear()
    for _ in range(20):
        await until_answered(lambda: read(catalogs))


async def test_compressed_copies_for_slow_clients_are_bounded(large: Revisions) -> None:
    catalogs, view = cache_of(large), View(include_disabled=True, ring=ALL_RINGS, hidden=frozenset("a"))
    await read(catalogs)
    check = await catalogs.check("acme")
    await catalogs.body("acme", check, ALL, PLAIN)
    await until(partial(nothing_is_retained, catalogs))

    slow = [await catalogs.body("acme", check, view, GZIP) for _ in range(20)]

    assert [answer and answer.encoding for answer in slow] == [GZIP] * 3 + [PLAIN] * 17
    slow.clear()

    async def is_compressed() -> bool:
        answer = await catalogs.body("acme", check, view, GZIP)
        return answer is not None and answer.encoding is GZIP

    await until(is_compressed)


@each("encoding", [PLAIN, GZIP])
async def test_an_answer_keeps_its_catalog_during_later_changes(large: Revisions, encoding: Encoding) -> None:
    catalogs = cache_of(large)
    first = await read(catalogs, encoding=encoding)
    assert first
    sent_early = read_blocks(first.blocks)

    later = await read(catalogs, encoding=encoding)

    assert later
    assert read_blocks(first.blocks) == sent_early != read_blocks(later.blocks)


@each("view", [ALL, ACTIVE, View(include_disabled=True, ring=ALL_RINGS, hidden=frozenset(["0007", "0999"]))])
def test_an_answer_has_no_packages_in_memory(view: View) -> None:
    catalog = snapshot(1000).replaced("1", {"0001": [fragment("0001", active=False)]})

    assert set(filter(lambda block: isinstance(block, bytes), catalog.answer(view, PLAIN))) <= {b"[", b",", b"]"}


async def test_a_full_disk_stores_no_catalog_until_it_has_room(
    large: Revisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs = cache_of(large)
    with monkeypatch.context() as full_disk:
        full_disk.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=1 << 40, free=100))
        assert await read(catalogs) is None
        assert b"acme" in b"".join([block async for block in catalogs.stream("acme", ALL)])
        assert catalogs.size == 0

    assert await read(catalogs)


async def test_a_change_on_a_full_disk_drops_the_catalog(large: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = cache_of(large)
    assert await read(catalogs)

    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")

    assert await read(catalogs) is None
    assert catalogs.size == 0


async def test_a_full_disk_sends_a_stored_catalog_uncompressed(
    large: Revisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs = cache_of(large)
    check = await catalogs.check("acme")
    assert await catalogs.body("acme", check, ALL, PLAIN)
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")

    answer = await catalogs.body("acme", check, ALL, GZIP)

    assert answer
    assert answer.encoding is PLAIN


async def test_files_of_a_catalog_count_with_their_smallest_size(large: Revisions) -> None:
    """Compressed files are short, but each takes a descriptor."""
    large.text, catalogs = "", cache_of(large)
    check = await catalogs.check("acme")
    for encoding, used in ((PLAIN, PLAIN), (GZIP, GZIP), (Zstd(), PLAIN)):  # two files of 4,096 bytes, of 10,000
        answer = await catalogs.body("acme", check, ALL, encoding)
        assert answer
        assert answer.encoding is used
    assert catalogs.size <= 10_000


async def test_a_catalog_whose_files_cannot_be_read_is_an_error(
    large: Revisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs, calls = cache_of(large), 0
    large.active = False
    check = await catalogs.check("acme")
    assert await catalogs.body("acme", check, ALL, PLAIN)

    def fail(descriptor: int, length: int, start: int) -> bytes:
        nonlocal calls
        calls += 1
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.pread", fail)
    with pytest.raises(OSError, match="Input/output"):
        await catalogs.body("acme", check, ACTIVE, GZIP)
    assert calls < 5


async def test_tenants_without_recent_requests_are_removed(large: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.caching.MAX_TENANTS", 3)
    catalogs = cache_of(large)
    before = await catalogs.check("acme")
    for tenant_id in ("one", "two", "three", "four"):
        await read(catalogs, tenant_id=tenant_id)

    assert len(catalogs._snapshots._entries) == 3
    for check in (before, await catalogs.check("acme")):  # A removed tenant gets the current catalog.
        answer = await catalogs.body("acme", check, ALL, PLAIN)
        assert answer
        assert b"acme 6" in read_blocks(answer.blocks)


async def test_inactive_packages_are_filtered_in_a_thread(large: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, ranges = [], Segment._ranges

    def record_thread(segment: Segment, view: View) -> Sequence[FileRange]:
        threads.append(threading.current_thread())
        return ranges(segment, view)

    monkeypatch.setattr(Segment, "_ranges", record_thread)
    monkeypatch.setattr(large, "active", False)

    assert await read(cache_of(large), ACTIVE)

    assert threads
    assert threading.main_thread() not in threads
