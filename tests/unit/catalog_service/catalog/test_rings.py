"""Catalogs by ring: each ring gets its versions only, and rings that see the same share the memory."""

import asyncio
import gzip
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service.catalog.cache import CatalogCache
from catalog_service.catalog.compression import ENCODINGS, PLAIN, Encoding, Gzip, Part
from catalog_service.catalog.routes import rendered_package
from catalog_service.catalog.snapshot import SEGMENT, CatalogFile, CatalogFiles, Fragment, Snapshot, View
from catalog_service.model.releases import Stage
from common.http.zero_copy.sources import read_blocks
from common.tenants import ALL_RINGS
from tests.support.samples.staged_catalogs import CALLER_RINGS, FIVE, PACKAGE_IDS, PACKAGES, RINGS, StagedCatalog
from tests.support.tables import each
from tests.unit.catalog_service.catalog.test_compression import decoded

VIEWS = st.builds(View, st.booleans(), CALLER_RINGS, st.sets(PACKAGE_IDS, max_size=2).map(frozenset))
STEPS = st.one_of(
    st.tuples(st.just("put"), PACKAGE_IDS, PACKAGES),
    st.tuples(st.just("put"), PACKAGE_IDS, PACKAGES),
    st.tuples(st.just("remove"), PACKAGE_IDS),
    st.tuples(st.just("rings"), RINGS, st.booleans()),
    st.tuples(st.just("read"), VIEWS, st.sampled_from(list(ENCODINGS.values()))),
    st.tuples(st.just("read"), VIEWS, st.sampled_from(list(ENCODINGS.values()))),
)


def cache_of(staged: StagedCatalog, disk: int = 1 << 30) -> CatalogCache:
    readers = staged.state, staged.read_names, staged.read_rings
    return CatalogCache(*readers, rendered_package, disk=disk, memory=1 << 20)


async def listed(catalogs: CatalogCache, view: View, encoding: Encoding = PLAIN) -> list[dict[str, Any]]:
    """The catalog in a view, which is the same without the cache."""
    body = await catalogs.body("acme", await catalogs.check("acme"), view, encoding)
    assert body is not None
    plain = decoded(body.encoding, read_blocks(body.blocks))
    assert plain == b"".join([block async for block in catalogs.stream("acme", view)])
    packages: list[dict[str, Any]] = orjson.loads(plain)
    return packages


async def follow(steps: Sequence[tuple[Any, ...]]) -> None:
    staged = StagedCatalog()
    catalogs = cache_of(staged)
    for kind, *values in steps:
        if kind != "read":
            staged.change(kind, *values)
            continue
        view, encoding = values
        packages = await listed(catalogs, view, encoding)
        assert [(package["PACKAGE_ID"], sorted(package["VERSIONS_UID"])) for package in packages] == [
            (package_id, sorted(version.uid for version in versions))
            for package_id, versions in staged.seen_from(view.ring).items()
            if package_id not in view.hidden and (view.include_disabled or staged.entries[package_id].package.active)
        ]


@settings(max_examples=30)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_each_ring_reads_the_plain_filter_of_all_entries(steps: Sequence[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("catalog_service.catalog.snapshot.SEGMENT", 2)
        asyncio.run(follow(steps))


class CountingGzip(Gzip):
    """Counts the bytes that it compresses."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []

    def pack(self, text: bytes) -> Part:
        self.packed.append(text)
        return super().pack(text)


def staged_snapshot(files: CatalogFiles) -> Snapshot:
    """A catalog of four segments. One package has a version for the first two of five rings only."""
    fragments = {f"{number:04}": [Fragment(f"{number:04}", True, b'"%d"' % number)] for number in range(4 * SEGMENT)}
    fragments["0007"] = [
        Fragment("0007", True, b'"new"', (ALL_RINGS, *FIVE[:2])),
        Fragment("0007", True, b'"old"', FIVE[2:]),
    ]
    return Snapshot("", files, rings=FIVE).replaced("", fragments)


def test_rings_that_see_the_same_share_compressed_parts() -> None:
    catalog, counting = staged_snapshot(CatalogFiles(1 << 30)), CountingGzip()

    texts = {
        ring: gzip.decompress(read_blocks(catalog.answer(View(include_disabled=True, ring=ring), counting)))
        for ring in (ALL_RINGS, *FIVE)
    }

    assert len(set(texts.values())) == 2
    assert len(counting.packed) == len(set(counting.packed)) == 4 + 1  # one segment in two views


def test_the_size_of_a_catalog_counts_every_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[CatalogFile] = []
    files = CatalogFiles(1 << 30)
    write = files.write

    def record_file(*blocks: bytes) -> CatalogFile:
        written.append(write(*blocks))
        return written[-1]

    catalog = staged_snapshot(files)
    size_before = catalog.size
    monkeypatch.setattr(files, "write", record_file)

    for ring in (ALL_RINGS, *FIVE, ALL_RINGS):
        for encoding in ENCODINGS.values():
            catalog.answer(View(include_disabled=False, ring=ring), encoding)

    assert catalog.size == size_before + sum(file.size for file in written)
    assert len(written) == 2 * 5  # two encodings of five different parts


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> StagedCatalog:
    """Forty packages whose views alternate between two parts of a file."""
    monkeypatch.setattr("tests.support.samples.staged_catalogs.BATCH", 40)
    staged = StagedCatalog(rings=FIVE)
    for number in range(40):
        staged.put(f"Acme.App{number:02}", ([(None, "stable"), (Stage(("pilot",)), "stable")], True))
    return staged


@each(("disk", "is_copied"), [(1 << 20, True), (40_000, False)])
async def test_packages_in_many_pieces_are_copied_if_there_is_room(
    many_pieces: StagedCatalog, disk: int, is_copied: bool
) -> None:
    catalogs = cache_of(many_pieces, disk)
    for ring in (ALL_RINGS, *FIVE):
        view = View(include_disabled=True, ring=ring)
        assert len(await listed(catalogs, view)) == 40
        body = await catalogs.body("acme", await catalogs.check("acme"), view, PLAIN)
        assert body
        assert (len(body.blocks) < 10) == is_copied
        assert catalogs.size <= disk


async def test_packages_in_many_pieces_are_sent_from_a_disk_that_is_full(
    many_pieces: StagedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs = cache_of(many_pieces)
    check = await catalogs.check("acme")
    assert await catalogs.body("acme", check, View(include_disabled=True, ring=ALL_RINGS), PLAIN)
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")

    body = await catalogs.body("acme", check, View(include_disabled=True, ring="late"), PLAIN)

    assert body
    assert len(orjson.loads(read_blocks(body.blocks))) == 40


async def test_a_package_is_in_a_catalog_once_for_rings_that_see_the_same() -> None:
    staged = StagedCatalog(rings=FIVE)
    staged.put("Acme.App00", ([(None, "stable"), (Stage(("pilot",)), "stable")], True))
    staged.put("Acme.App01", ([(None, "stable"), (Stage((ALL_RINGS,)), "stable")], True))
    staged.put("Acme.App02", ([(Stage(), "stable")], True))
    catalogs = cache_of(staged)
    await listed(catalogs, View(include_disabled=True, ring=ALL_RINGS))

    snapshot = await catalogs._snapshots.get("acme", await catalogs.check("acme"))

    assert snapshot
    (segment,) = snapshot.segments
    assert [(fragment.package_id, fragment.rings) for fragment in segment.items()] == [
        ("Acme.App00", (ALL_RINGS, "pilot")),
        ("Acme.App00", FIVE[1:]),
        ("Acme.App01", None),
        ("Acme.App02", (ALL_RINGS,)),
    ]
