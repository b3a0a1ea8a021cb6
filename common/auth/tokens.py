"""What tokens say, with each signature computed once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

from common.auth.signing import CLOCK_SKEW, Keys
from common.caching.bounded_cache import FifoCache

Found = TypeVar("Found")
REMEMBERED_AT_MOST = 4096  # tokens


@dataclass(frozen=True)
class _Verified(Generic[Found]):
    found: Found
    expires: int  # seconds since 1970


class Tokens(Generic[Found]):
    """Reads tokens of one kind, and remembers what those say that are right, by their digests.

    Whether a token has expired is looked at each time, and other keys make everything forgotten.
    """

    def __init__(
        self, keys: Keys, *, audience: str, required: Sequence[str], parse: Callable[[Mapping[str, Any]], Found]
    ) -> None:
        """`parse` makes of a token's claims what is wanted of them, or raises."""
        self._keys = keys
        self._audience = audience
        self._required = required
        self._parse = parse
        self._words = keys.accepted
        self._verified: FifoCache[bytes, _Verified[Found]] = FifoCache(REMEMBERED_AT_MOST)

    def read(self, token: str) -> Found:
        """What a token says.

        Raises:
            jwt.InvalidTokenError, UnicodeError, ValueError: it is none of ours, or has expired.
            And what `parse` raises.
        """
        words = self._keys.accepted
        if words != self._words:
            self._words = words
            self._verified.clear()
        digest = sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is not None and time.time() < known.expires + CLOCK_SKEW:
            return known.found
        claims = self._keys.claims(token, audience=self._audience, required=self._required)
        found = self._parse(claims)
        self._verified.put(digest, _Verified(found, int(claims["exp"])))
        return found
