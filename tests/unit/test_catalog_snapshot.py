"""A catalog that is kept: what changed is put in its place, and all else stays what it was."""

import gzip
import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service.encodings import COMPRESSED, PLAIN
from catalog_service.revisions import Change, Standing
from catalog_service.snapshot import SEGMENT, Fragment, Snapshot, View

GZIP = COMPRESSED[0]
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


def test_what_is_hidden_is_left_out_and_nothing_is_compressed_for_it() -> None:
    kept = snapshot(1000).replaced("1", {"0001": fragment("0001", active=False)})
    expected = [f"{number:04}" for number in range(1000) if number not in {1, 7, 999}]
    hidden = frozenset(["0007", "0999", "unknown"])

    assert shown(kept, View(include_disabled=False, hidden=hidden)) == expected
    assert len(kept.lacking(ACTIVE, GZIP)) == 2  # of four: those where something is hidden


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
