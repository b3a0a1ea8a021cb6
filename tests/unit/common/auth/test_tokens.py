"""A signature is verified once, and an invalid token is never cached as valid."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest

from common.auth import signing
from common.auth.signing import ALGORITHM, CLOCK_SKEW, Keys, TokenVerifier
from tests.support.clock import Clock
from tests.support.factories import KEY
from tests.support.tables import each

OTHER_KEY = "another-key-for-tests-long-enough-too"
LIFETIME = 60  # seconds


class CountedKeys(Keys):
    """Counts the verified signatures."""

    computed = 0

    def verify_token(self, token: str, **options: Any) -> Mapping[str, Any]:
        self.computed += 1
        return super().verify_token(token, **options)


def verifier(keys: Keys) -> TokenVerifier[str]:
    return TokenVerifier(keys, audience="here", required=["sub"], parse=lambda claims: str(claims["sub"]))


def token(key: str = KEY, **changes: Any) -> str:
    now = int(time.time())
    return jwt.encode({"aud": "here", "sub": "ada", "iat": now, "exp": now + LIFETIME, **changes}, key, ALGORITHM)


def test_a_signature_is_verified_once() -> None:
    keys = CountedKeys(KEY)
    token_verifier, ada, bob = verifier(keys), token(), token(sub="bob")

    assert [token_verifier.verify(text) for text in (ada, ada, bob, ada, bob)] == ["ada", "ada", "bob", "ada", "bob"]
    assert keys.computed == 2


@each("wrong", [token(OTHER_KEY), token(aud="elsewhere"), token()[:-4] + "AAAA", "", "x"], ids=range(5))
def test_an_invalid_token_is_refused_each_time(wrong: str) -> None:
    keys = CountedKeys(KEY)
    token_verifier = verifier(keys)
    token_verifier.verify(token())
    for _ in range(2):
        with pytest.raises(jwt.InvalidTokenError):
            token_verifier.verify(wrong)
    assert keys.computed == 3


def test_a_cached_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = CountedKeys(KEY)
    token_verifier, text, ends = verifier(keys), token(), int(time.time()) + LIFETIME + CLOCK_SKEW
    token_verifier.verify(text)

    monkeypatch.setattr(signing, "time", Clock(ends - 1))
    assert (token_verifier.verify(text), keys.computed) == ("ada", 1)

    monkeypatch.setattr(signing, "time", Clock(ends + 1))
    token_verifier.verify(text)  # not expired by the real clock
    assert keys.computed == 2


def test_changed_keys_clear_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.auth.signing.RELOAD_INTERVAL", 0.0)
    file, text = tmp_path / "key", token()
    file.write_text(KEY)
    token_verifier = verifier(Keys(file))
    token_verifier.verify(text)
    file.write_text(f"{OTHER_KEY} {KEY}")
    assert token_verifier.verify(text) == "ada"

    file.write_text(OTHER_KEY)

    with pytest.raises(jwt.InvalidSignatureError):
        token_verifier.verify(text)


def test_the_cache_is_bounded_and_contains_no_plain_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "MAX_TOKENS", 3)
    keys = CountedKeys(KEY)
    token_verifier, texts = verifier(keys), [token(sub=f"user-{number}") for number in range(4)]
    for text in (*texts, *texts[1:]):
        token_verifier.verify(text)
    assert keys.computed == 4

    token_verifier.verify(texts[0])

    assert keys.computed == 5
    assert not any(text in repr(vars(token_verifier)) + repr(vars(token_verifier._verified)) for text in texts)
