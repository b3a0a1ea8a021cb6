"""The order of versions."""

import random

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.versions import VersionName, VersionOrder, newest_first
from tests.support.tables import each

numbers = st.lists(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=6)
texts = st.one_of(
    numbers.map(lambda parts: ".".join(map(str, parts))), st.text(alphabet="0123456789.-abRC ", max_size=20)
)


@each(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("9", "10"),
        ("1.0", "1.0.1"),
        ("1.0-beta", "1.0"),
        ("1.0.0-beta", "1"),
        ("1.0-alpha", "1.0-BETA"),
        ("v1.2", "v1.10"),
        ("2023.12.1", "2024.1"),
        ("1.0.9999999999999999999998", "1.0.9999999999999999999999"),
        ("beta", "1"),
    ],
)
def test_versions_compare_by_their_numeric_parts(older: str, newer: str) -> None:
    assert VersionOrder(older) < VersionOrder(newer)


@each(("first", "second"), [("1.2", "1.2.0"), ("v1.2", "1.2"), ("1.02", "1.2"), ("", "0"), ("1.RC", "1.rc")])
def test_versions_with_different_spellings_are_equal(first: str, second: str) -> None:
    assert VersionOrder(first) == VersionOrder(second)
    assert hash(VersionOrder(first)) == hash(VersionOrder(second))


@given(numbers, numbers)
def test_numeric_versions_compare_as_sequences_of_numbers(first: list[int], second: list[int]) -> None:
    def version(parts: list[int]) -> VersionOrder:
        return VersionOrder(".".join(map(str, parts)))

    longest = max(len(first), len(second))
    padded_left, padded_right = (parts + [0] * (longest - len(parts)) for parts in (first, second))
    assert (version(first) < version(second)) == (padded_left < padded_right)


@given(texts, texts, texts)
def test_the_order_is_total_and_transitive(first: str, second: str, third: str) -> None:
    a, b, c = VersionOrder(first), VersionOrder(second), VersionOrder(third)
    assert [a < b, a == b, b < a].count(True) == 1
    if a <= b <= c:
        assert a <= c


@given(st.lists(texts, max_size=8), st.randoms(use_true_random=False))
def test_newest_first_does_not_depend_on_the_input_order(versions: list[str], shuffle: random.Random) -> None:
    given_order = [VersionName("", version, str(index)) for index, version in enumerate(versions)]
    shuffled = list(given_order)
    shuffle.shuffle(shuffled)

    assert newest_first(shuffled) == newest_first(given_order)


def test_the_newest_comes_first() -> None:
    versions = [VersionName("", version, "") for version in ("1.9", "1.10", "1.10-rc1", "2.0")]

    assert [version.version for version in newest_first(versions)] == ["2.0", "1.10", "1.10-rc1", "1.9"]
