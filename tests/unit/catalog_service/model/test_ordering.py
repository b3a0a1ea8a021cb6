"""Which version is newer."""

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.ordering import VersionOrder, newest_first
from tests.support.tables import each

numbers = st.lists(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=6)
texts = st.one_of(
    numbers.map(lambda parts: ".".join(map(str, parts))), st.text(alphabet="0123456789.-abRC ", max_size=20)
)


@dataclass(frozen=True)
class One:
    version: str
    uid: str = ""


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


@each(("one", "other"), [("1.2", "1.2.0"), ("v1.2", "1.2"), ("1.02", "1.2"), ("", "0"), ("1.RC", "1.rc")])
def test_versions_that_differ_in_spelling_alone_are_equal(one: str, other: str) -> None:
    assert VersionOrder(one) == VersionOrder(other)
    assert hash(VersionOrder(one)) == hash(VersionOrder(other))


@given(numbers, numbers)
def test_numeric_versions_compare_as_sequences_of_numbers(left: list[int], right: list[int]) -> None:
    def version(parts: list[int]) -> VersionOrder:
        return VersionOrder(".".join(map(str, parts)))

    longest = max(len(left), len(right))
    padded_left, padded_right = (parts + [0] * (longest - len(parts)) for parts in (left, right))
    assert (version(left) < version(right)) == (padded_left < padded_right)


@given(texts, texts, texts)
def test_the_order_is_total_and_transitive(first: str, second: str, third: str) -> None:
    a, b, c = VersionOrder(first), VersionOrder(second), VersionOrder(third)
    assert [a < b, a == b, b < a].count(True) == 1
    if a <= b <= c:
        assert a <= c


@given(st.lists(texts, max_size=8), st.randoms(use_true_random=False))
def test_newest_first_does_not_depend_on_the_order_given(versions: list[str], shuffle: random.Random) -> None:
    given_order = [One(version, str(index)) for index, version in enumerate(versions)]
    shuffled = list(given_order)
    shuffle.shuffle(shuffled)

    assert newest_first(shuffled) == newest_first(given_order)


def test_the_newest_comes_first() -> None:
    versions = [One("1.9"), One("1.10"), One("1.10-rc1"), One("2.0")]

    assert [one.version for one in newest_first(versions)] == ["2.0", "1.10", "1.10-rc1", "1.9"]
