"""Verifies JSON web tokens, and computes each signature once."""

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Generic, TypeVar

from common.auth.signing import CLOCK_SKEW, Keys
from common.caching.bounded_cache import FifoCache

Parsed = TypeVar("Parsed")
MAX_TOKENS = 4096


class TokenVerifier(Generic[Parsed]):
    """Verifies tokens of one audience. Valid tokens are cached by their digests.

    The expiry is checked each time. A change of the keys empties the cache.
    """

    def __init__(
        self, keys: Keys, *, audience: str, required: Sequence[str], parse: Callable[[Mapping[str, Any]], Parsed]
    ) -> None:
        """`parse` turns the claims into the result, or raises."""
        self._keys = keys
        self._audience = audience
        self._required = required
        self._parse = parse
        self._accepted = keys.accepted
        # The results and their expiry in seconds since 1970, by the digests of the tokens.
        self._verified: FifoCache[bytes, tuple[Parsed, int]] = FifoCache(MAX_TOKENS)

    def verify(self, token: str) -> Parsed:
        """The parsed claims of a token.

        Raises:
            jwt.InvalidTokenError, UnicodeError, ValueError: the token is invalid or has expired.
            And the errors of `parse`.
        """
        accepted = self._keys.accepted
        if accepted != self._accepted:
            self._accepted = accepted
            self._verified.clear()
        digest = sha256(token.encode()).digest()
        if cached := self._verified.get(digest):
            parsed, expires = cached
            if time.time() < expires + CLOCK_SKEW:
                return parsed
        claims = self._keys.verify_token(token, audience=self._audience, required=self._required)
        parsed = self._parse(claims)
        self._verified.put(digest, (parsed, int(claims["exp"])))
        return parsed
