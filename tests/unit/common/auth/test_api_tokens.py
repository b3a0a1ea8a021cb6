"""API tokens: their parts, their checksum, and the patterns of package ids that restrict them."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.auth.roles import EVERY_PACKAGE, _compiled, matches, parse_patterns
from common.auth.signing import API_TOKEN_PATTERN, ApiToken, new_token, new_token_id
from common.errors import InvalidField, NotAuthenticated

DOCUMENT = Path(__file__).parents[4] / "deploy" / "docs" / "access.md"
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase


def test_a_token_has_its_id_and_another_secret_each_time() -> None:
    token_id = new_token_id()
    texts = {new_token(token_id) for _ in range(100)}
    tokens = [ApiToken.parse(text) for text in texts]
    assert len(texts) == len({token.digest for token in tokens}) == 100
    assert {token.token_id for token in tokens} == {token_id}
    assert all(re.fullmatch(API_TOKEN_PATTERN, text) for text in texts)
    assert not any(text.split("_")[2] in str(ApiToken.parse(text)) for text in texts)


def test_the_secret_has_256_bits() -> None:
    secrets = [new_token("0" * 16).split("_")[2][42::-1] for _ in range(2000)]
    values = [sum(ALPHABET.index(digit) * 62**place for place, digit in enumerate(secret)) for secret in secrets]
    assert all(value < 2**256 for value in values)
    assert any(value >= 2**255 for value in values)


def test_each_typing_error_is_recognised() -> None:
    text = new_token(new_token_id())
    for place in range(len(text)):
        for other in {"0", "1", "a", "Z", "_"} - {text[place]}:
            with pytest.raises(NotAuthenticated):
                ApiToken.parse(text[:place] + other + text[place + 1 :])
        with pytest.raises(NotAuthenticated):
            ApiToken.parse(text[:place] + text[place + 1 :])
    for place in range(len(text) - 1):
        swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
        if swapped != text:
            with pytest.raises(NotAuthenticated):
                ApiToken.parse(swapped)


@pytest.mark.parametrize("change", ["{} ", " {}", "{}\n", "{}0", "x{}", "{}\0", "Bearer {}"])
def test_a_token_with_more_characters_is_refused(change: str) -> None:
    with pytest.raises(NotAuthenticated):
        ApiToken.parse(change.format(new_token(new_token_id())))


@given(st.text(max_size=80) | st.text(alphabet=ALPHABET + "_", max_size=80).map(lambda text: f"pkgr_{text}"))
def test_no_other_text_is_a_token(text: str) -> None:
    with pytest.raises(NotAuthenticated):
        ApiToken.parse(text)


def test_a_secret_scanner_finds_a_token_with_the_documented_pattern() -> None:
    assert f"`{API_TOKEN_PATTERN}`" in DOCUMENT.read_text(encoding="utf-8")
    text = new_token(new_token_id())
    for leak in (f"PKGREPO_TOKEN={text}\n", f'{{"token":"{text}"}}', f"curl -H 'Authorization: Bearer {text}' x"):
        assert re.findall(API_TOKEN_PATTERN, leak) == [text]


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
@example(["Acme.*"], "acme.Editor")
@example(["Acme.Editor"], "AcmeXEditor")
def test_a_pattern_matches_as_the_reference(patterns: list[str], text: str) -> None:
    assert matches(tuple(patterns), text) is any(reference(pattern, text) for pattern in patterns)


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
    with pytest.raises(InvalidField, match="package_ids: must have at least one pattern"):
        parse_patterns("package_ids", [])
