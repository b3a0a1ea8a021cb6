"""Keys: the one that signs, and those that are accepted while it takes another's place.

A key is 32 characters or more without white space. Where two stand side by side the first signs and both are accepted,
so a key is replaced in three steps, each of them known to all services before the next: the new key is put behind the
old one, before it, and in its place. Keys in a file are read again when the file changes.
"""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt

from common.telemetry import log

LENGTH = 32  # characters of a key, at least
AT_ONCE = 2  # keys, at most
NOTICED = 1.0  # seconds after which a changed file is known
ALGORITHM = "HS256"
CLOCK_SKEW = 10  # seconds that two hosts' clocks may differ


class Keys:
    """The keys of one purpose, as they stand now."""

    def __init__(self, source: str | Path) -> None:
        """Take the keys themselves, or the file that holds them.

        Raises:
            ValueError: a key is missing or too short, or there are too many.
            OSError: the file cannot be read.
        """
        self._file = source if isinstance(source, Path) else None
        self._state = _state(self._file) if self._file else None
        self._words = words_of(self._file.read_text(encoding="utf-8") if self._file else str(source))
        self._looked_at = time.monotonic()

    @property
    def accepted(self) -> tuple[str, ...]:
        """Every key that counts."""
        if self._file and time.monotonic() - self._looked_at >= NOTICED:
            self._look_again(self._file)
        return self._words

    @property
    def signing(self) -> str:
        """The key to sign with."""
        return self.accepted[0]

    def digests(self, text: str) -> tuple[str, ...]:
        """The HMAC-SHA256 of a text under each key, in hexadecimal digits; the first is the one to give away."""
        return tuple(hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest() for key in self.accepted)

    def signed(self, text: str, digest: str) -> bool:
        """Whether this is the text's digest under any of the keys; takes as long for a wrong one as for a right one."""
        return sum(hmac.compare_digest(ours.encode(), digest.encode()) for ours in self.digests(text)) > 0

    def claims(self, token: str, *, audience: str, required: Sequence[str]) -> Mapping[str, Any]:
        """What a token says that was signed with any of the keys, for this audience, and has not expired.

        Raises:
            jwt.InvalidTokenError, UnicodeError, ValueError: it is none of ours.
        """
        refused = jwt.InvalidTokenError()
        for key in self.accepted:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    key,
                    algorithms=[ALGORITHM],
                    audience=audience,
                    leeway=CLOCK_SKEW,
                    options={"require": ["exp", "iat", "aud", *required]},
                )
            except jwt.InvalidSignatureError as error:
                refused = error
            else:
                return claims
        raise refused

    def _look_again(self, file: Path) -> None:
        """Take what the file holds now; where that is no key, say so once and go on with what it held before."""
        self._looked_at = time.monotonic()
        if (state := _state(file)) == self._state:
            return
        self._state = state
        try:
            self._words = words_of(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.error("key_file_not_taken", file=str(file), error=type(error).__name__)
        else:
            log.info("key_file_taken", file=str(file), keys=len(self._words))


def words_of(text: str) -> tuple[str, ...]:
    """The keys of a text, the one that signs first. Raises ValueError."""
    words = tuple(text.split())
    if not 1 <= len(words) <= AT_ONCE or any(len(word) < LENGTH for word in words):
        raise ValueError(f"must be a key of {LENGTH} characters or more without white space, or two of them")
    return words


def _state(file: Path) -> tuple[int, int, int] | None:
    """What is another whenever the file was replaced or written to; None where it cannot be seen."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
