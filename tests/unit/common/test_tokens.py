"""A signature is computed once, and nothing wrong is ever remembered as right."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest

from common.auth import tokens
from common.auth.signing import ALGORITHM, CLOCK_SKEW, Keys
from common.auth.tokens import TokenVerifier
from tests.support.factories import KEY
from tests.support.tables import each

OTHER_KEY = "another-key-for-tests-long-enough-too"
LIFETIME = 60  # seconds


class CountedKeys(Keys):
    """Counts the signatures that are computed."""

    computed = 0

    def verify_token(self, token: str, **wanted: Any) -> Mapping[str, Any]:
        self.computed += 1
        return super().verify_token(token, **wanted)


class Clock:
    """A clock that stands."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


def reader(keys: Keys) -> TokenVerifier[str]:
    return TokenVerifier(keys, audience="here", required=["sub"], parse=lambda claims: str(claims["sub"]))


def token(key: str = KEY, **changes: Any) -> str:
    now = int(time.time())
    return jwt.encode({"aud": "here", "sub": "ada", "iat": now, "exp": now + LIFETIME, **changes}, key, ALGORITHM)


def test_a_signature_is_computed_once() -> None:
    keys = CountedKeys(KEY)
    known, ada, bob = reader(keys), token(), token(sub="bob")

    assert [known.verify(text) for text in (ada, ada, bob, ada, bob)] == ["ada", "ada", "bob", "ada", "bob"]
    assert keys.computed == 2


@each("wrong", [token(OTHER_KEY), token(aud="elsewhere"), token()[:-4] + "AAAA", "", "x"], ids=range(5))
def test_a_wrong_token_is_wrong_each_time(wrong: str) -> None:
    keys = CountedKeys(KEY)
    known = reader(keys)
    known.verify(token())
    for _ in range(2):
        with pytest.raises(jwt.InvalidTokenError):
            known.verify(wrong)
    assert keys.computed == 3


def test_what_was_read_expires_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = CountedKeys(KEY)
    known, text, ends = reader(keys), token(), int(time.time()) + LIFETIME + CLOCK_SKEW
    known.verify(text)

    monkeypatch.setattr(tokens, "time", Clock(ends - 1))
    assert (known.verify(text), keys.computed) == ("ada", 1)

    monkeypatch.setattr(tokens, "time", Clock(ends + 1))
    known.verify(text)  # by the clock of the test's machine, at which it is not over
    assert keys.computed == 2


def test_other_keys_make_everything_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.auth.signing.RELOAD_INTERVAL", 0.0)
    file, text = tmp_path / "key", token()
    file.write_text(KEY)
    known = reader(Keys(file))
    known.verify(text)
    file.write_text(f"{OTHER_KEY} {KEY}")
    assert known.verify(text) == "ada"

    file.write_text(OTHER_KEY)

    with pytest.raises(jwt.InvalidSignatureError):
        known.verify(text)


def test_no_more_tokens_are_remembered_than_may_and_none_in_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 3)
    keys = CountedKeys(KEY)
    known, texts = reader(keys), [token(sub=f"user-{number}") for number in range(4)]
    for text in (*texts, *texts[1:]):
        known.verify(text)
    assert keys.computed == 4

    known.verify(texts[0])

    assert keys.computed == 5
    assert not any(text in repr(vars(known)) + repr(vars(known._verified)) for text in texts)
