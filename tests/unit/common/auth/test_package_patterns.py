"""Patterns of package ids: compared with a simple reference, and their cost on hostile patterns."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.auth.roles import EVERY_PACKAGE, _compiled, matches, parse_patterns
from common.errors import InvalidField

TEXTS = st.text(alphabet="aA.*-+[]!^$()?é", max_size=12)
IDS = st.text(alphabet="aA.-+[]!^$()é\n", max_size=12)


def reference(pattern: str, text: str) -> bool:
    """Whether the pattern matches, by a table: `*` stands for any characters."""
    reachable = {0}
    for character in pattern:
        if character == "*":
            reachable = set(range(min(reachable), len(text) + 1)) if reachable else set()
        else:
            reachable = {at + 1 for at in reachable if text[at : at + 1] == character}
    return len(text) in reachable


@given(st.lists(TEXTS.filter(lambda text: "?" not in text), min_size=1, max_size=4), IDS)
@example(["a*a*a"], "aa")
@example(["[a]*"], "a.A")
@example(["a"], "a\n")
@example(["*."], "A")
def test_a_pattern_matches_as_the_reference(patterns: list[str], text: str) -> None:
    assert matches(tuple(patterns), text) is any(reference(pattern, text) for pattern in patterns)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (
            "Acme.*",
            ("Acme.", "Acme.Editor", "Acme.Editor.Pro"),
            ("Acme", "acme.Editor", "XAcme.Editor", "AcmeX.Editor"),
        ),
        ("Acme.Editor", ("Acme.Editor",), ("AcmeXEditor", "Acme.Editor2", "Acme.EditoR", "Acme.Editor\n")),
        ("*.Editor", ("Acme.Editor", ".Editor"), ("Editor", "Acme.Editor.")),
        ("*", ("", "Acme", "\n"), ()),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, matching: tuple[str, ...], others: tuple[str, ...]) -> None:
    assert [text for text in matching if not matches((pattern,), text)] == []
    assert [text for text in others if matches((pattern,), text)] == []


@pytest.mark.parametrize("pattern", ["*a" * 64, "a*" * 64, "*" * 128, "*aa" * 42 + "*", "a*b" * 42])
def test_a_hostile_pattern_needs_no_backtracking(pattern: str) -> None:
    """Every `*` but the last is in an atomic group, which is never entered again."""
    source = _compiled((pattern,)).pattern
    assert source.count("(?>") + 1 >= source.count(".*")
    assert matches((pattern,), "a" * 128) is reference(pattern, "a" * 128)
    assert not matches((pattern,), "a" * 127 + "c") or pattern.endswith("*")


@pytest.mark.parametrize("pattern", ["a/b", "a\\b", "a:b", "a?", '"', "<", ">", "|", ".", "..", "a,b"])
def test_a_pattern_that_matches_no_package_id_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidField, match="package_ids") as error:
        parse_patterns("package_ids", ["Acme.*", pattern])
    assert error.value.params["pattern"] == pattern


def test_patterns_are_sorted_and_different() -> None:
    assert parse_patterns("package_ids", ["b", "a*", "b"]) == ("a*", "b")
    assert parse_patterns("package_ids", ["*"]) == EVERY_PACKAGE


def test_no_pattern_is_refused() -> None:
    with pytest.raises(InvalidField, match="package_ids: must have at least one pattern"):
        parse_patterns("package_ids", [])
