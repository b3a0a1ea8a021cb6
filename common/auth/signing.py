"""Signing keys, how one key replaces another, tokens that are signed with them, and the text of API tokens.

A key has at least 32 characters and no white space. Of two keys, the first signs and both are accepted. To replace a
key, put the new one behind the old one, then before it, then remove the old one; all services must know each step
before the next. Keys in a file are read again when the file changes.
"""

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from zlib import crc32

import jwt
from jwt.types import Options

from common.caching import FifoCache
from common.errors import NotAuthenticated
from common.telemetry import log

LENGTH = 32  # characters of a key, at least
MAX_KEYS = 2
RELOAD_INTERVAL = 1.0  # seconds until a changed file is noticed
ALGORITHM = "HS256"
CLOCK_SKEW = 10  # seconds that two hosts' clocks may differ
MAX_TOKENS = 4096  # that a verifier remembers
KEY_ID, KEY_ID_LENGTH = b"the id of a key of pkgrepo", 16
Parsed = TypeVar("Parsed")


class Keys:
    """The current keys of one purpose."""

    def __init__(self, source: str | Path) -> None:
        """`source` is the text of the keys, or their file. Raises ValueError for bad keys, OSError for the file."""
        self._file = source if isinstance(source, Path) else None
        self._file_state = _file_state(self._file) if self._file else None
        self._keys = parse_keys(self._file.read_text(encoding="utf-8") if self._file else str(source))
        self._checked_at = time.monotonic()

    @property
    def accepted(self) -> tuple[str, ...]:
        """Every accepted key, the signing one first."""
        if self._file and time.monotonic() - self._checked_at >= RELOAD_INTERVAL:
            self._reload(self._file)
        return self._keys

    @property
    def signing(self) -> str:
        return self.accepted[0]

    @property
    def signing_id(self) -> str:
        """The id of the signing key, in hexadecimal; it does not reveal the key."""
        return hmac.new(self.signing.encode(), KEY_ID, sha256).hexdigest()[:KEY_ID_LENGTH]

    def digests(self, text: str) -> tuple[str, ...]:
        """The HMAC-SHA256 of a text under each key, in hexadecimal; the first is under the signing key."""
        return tuple(hmac.new(key.encode(), text.encode(), sha256).hexdigest() for key in self.accepted)

    def verify_digest(self, text: str, digest: str) -> bool:
        """Whether this is the text's digest under any of the keys; compares in constant time."""
        return sum(hmac.compare_digest(ours.encode(), digest.encode()) for ours in self.digests(text)) > 0

    def verify_token(self, token: str, *, audience: str, required: Sequence[str]) -> Mapping[str, Any]:
        """The claims of a token that is signed with any of the keys, for this audience, and has not expired.

        Raises jwt.InvalidTokenError, UnicodeError, ValueError: the token is invalid.
        """
        options: Options = {"require": ["exp", "iat", "aud", *required]}
        failure = jwt.InvalidTokenError()
        for key in self.accepted:
            try:
                return jwt.decode(token, key, [ALGORITHM], options, audience=audience, leeway=CLOCK_SKEW)
            except jwt.InvalidSignatureError as error:
                failure = error
        raise failure

    def _reload(self, file: Path) -> None:
        """Read the file again if it changed. An invalid file is logged once, and the old keys stay in use."""
        self._checked_at = time.monotonic()
        if (state := _file_state(file)) == self._file_state:
            return
        self._file_state = state
        try:
            self._keys = parse_keys(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.error("key_file_not_taken", file=str(file), error=type(error).__name__)
        else:
            log.info("key_file_taken", file=str(file), keys=len(self._keys))


class TokenVerifier(Generic[Parsed]):
    """Verifies JSON web tokens of one audience. Valid tokens are cached by their digests.

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
        """The parsed claims of a token. Raises as `Keys.verify_token` does, and the errors of `parse`."""
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


def parse_keys(text: str) -> tuple[str, ...]:
    """The keys of a text, the signing one first. Raises ValueError."""
    keys = tuple(text.split())
    if not 1 <= len(keys) <= MAX_KEYS or any(len(key) < LENGTH for key in keys):
        raise ValueError(f"must be a key of {LENGTH} characters or more without white space, or two of them")
    return keys


def _file_state(file: Path) -> tuple[int, int, int] | None:
    """A value that differs after each change of the file; None for a file that cannot be seen."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


# The text of an API token is `pkgr_<id>_<secret>`; its last six characters are a checksum of all before. Secret
# scanners recognise the pattern, and a mistyped token costs no look-up.
API_TOKEN_PREFIX = "pkgr_"  # noqa: S105  the same for all
API_TOKEN_PATTERN = r"pkgr_[0-9a-f]{16}_[0-9A-Za-z]{49}"  # noqa: S105
USER_PREFIX = "token:"  # before a token's name where a username stands; no user has such a name
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_BYTES, _SECRET_LENGTH, _CHECKSUM_LENGTH = 32, 43, 6


@dataclass(frozen=True)
class ApiToken:
    """A token's id and the SHA-256 of its text, in hexadecimal digits. Only these are stored and sent on."""

    token_id: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises NotAuthenticated: this is no token, or it has a typing error."""
        if not re.fullmatch(API_TOKEN_PATTERN, text) or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
            raise NotAuthenticated("The API token is not valid.")
        return cls(text.split("_")[1], digest_of(text))


def digest_of(text: str) -> str:
    """The SHA-256 of a token's text, which has enough random bits to need no slow hash."""
    return sha256(text.encode()).hexdigest()


def new_token_id() -> str:
    return secrets.token_hex(8)


def new_token(token_id: str) -> str:
    """The text of a token with a new secret."""
    number = int.from_bytes(secrets.token_bytes(_SECRET_BYTES), "big")
    text = f"{API_TOKEN_PREFIX}{token_id}_{_base62(number, _SECRET_LENGTH)}"
    return text + _checksum(text)


def _checksum(text: str) -> str:
    return _base62(crc32(text.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
