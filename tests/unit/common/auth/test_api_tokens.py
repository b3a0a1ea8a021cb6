"""The text of API tokens: its parts, its checksum, and the expression that secret scanners use."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.auth.signing import API_TOKEN_PATTERN, ApiToken, new_token, new_token_id
from common.errors import NotAuthenticated

DOCUMENT = Path(__file__).parents[4] / "deploy" / "docs" / "access.md"
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase


def test_a_token_has_its_id_and_another_secret_each_time() -> None:
    token_id = new_token_id()
    texts = {new_token(token_id) for _ in range(100)}
    tokens = [ApiToken.parse(text) for text in texts]
    assert len(texts) == len({token.digest for token in tokens}) == 100
    assert {token.token_id for token in tokens} == {token_id}
    assert all(re.fullmatch(API_TOKEN_PATTERN, text) for text in texts)


def test_the_secret_has_256_bits() -> None:
    secrets = [new_token("0" * 16).split("_")[2][42::-1] for _ in range(2000)]
    values = [sum(ALPHABET.index(digit) * 62**place for place, digit in enumerate(secret)) for secret in secrets]
    assert all(value < 2**256 for value in values)
    assert any(value >= 2**255 for value in values)


def test_no_part_of_a_parsed_token_is_its_secret() -> None:
    text = new_token(new_token_id())
    assert text.split("_")[2] not in str(ApiToken.parse(text))


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
