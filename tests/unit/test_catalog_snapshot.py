"""A catalog that is kept: what changed is put in its place, and all else stays what it was."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service import wire
from catalog_service.encodings import PLAIN, Gzip, Part
from catalog_service.entries import CatalogEntry
from catalog_service.model import Package
from catalog_service.revisions import Change, Standing
from catalog_service.snapshot import SEGMENT, Fragment, Snapshot, View
from catalog_service.snapshots import Snapshots

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


@settings(deadline=None, max_examples=30)
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


@pytest.mark.parametrize("packages", [1000, 10_000])
def test_a_change_renders_one_segment_anew_at_any_size(packages: int) -> None:
    before = snapshot(packages)
    before.answer(ALL, GZIP)

    after = before.replaced("1", {"0500": fragment("0500", number=1)})

    assert len(set(after.segments) - set(before.segments)) == 1
    assert len(after.lacking(ALL, GZIP)) == 1
    assert shown(after, ALL) == shown(before, ALL)


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


@pytest.mark.parametrize(
    ("known", "changed"),
    [("3", {"open"}), ("2", {"c", "open"}), ("1", {"a", "c", "open"}), ("0", None), ("", None)],
)
def test_what_changed_since_a_revision_is_known_as_long_as_it_is_among_the_latest(
    known: str, changed: set[str] | None
) -> None:
    standing = Standing("3", [Change("1", "b"), Change("2", "a"), Change("3", "c")], frozenset(["open"]))

    assert standing.since(known) == changed


class Looks:
    """Answers as the database would: a revision for each look, and one package that every change was about."""

    def __init__(self) -> None:
        self.number = 0
        self.reads: list[object] = []
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def standing(self, tenant_id: str, known: str) -> Standing:
        assert tenant_id == "acme"
        self.number += 1
        standing = Standing(str(self.number), [Change(str(number), "a") for number in range(self.number + 1)])
        self.asked.set()
        await self.go_on.wait()
        return standing

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]:
        self.reads.append(package_ids)
        yield [CatalogEntry(Package("a", "", f"{tenant_id} {self.number}", ""), [])]


async def test_who_comes_while_the_database_is_asked_is_told_what_it_says_next() -> None:
    looks = Looks()
    snapshots = Snapshots(looks, looks, wire.rendered, memory=10_000)
    first = asyncio.create_task(snapshots.look("acme"))
    await looks.asked.wait()
    late = [asyncio.create_task(snapshots.look("acme")) for _ in range(5)]
    await asyncio.sleep(0)
    looks.go_on.set()

    assert (await first).revision == "1"
    assert [(await look).revision for look in late] == ["2"] * 5


async def test_a_look_that_another_has_overtaken_reads_nothing() -> None:
    looks = Looks()
    snapshots = Snapshots(looks, looks, wire.rendered, memory=10_000)
    looks.go_on.set()
    first, second, third = [await snapshots.look("acme") for _ in range(3)]

    answers = [await snapshots.answer("acme", look, ALL, PLAIN) for look in (first, third, second)]

    assert looks.reads == [None, {"a"}]
    assert all(answer and b"acme 3" in b"".join(answer.blocks) for answer in answers)
