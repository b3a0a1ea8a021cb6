"""The text of an API token: `pkgr_<id>_<secret>`, whose last six characters are a checksum of all before.

Secret scanners recognise `PATTERN`, and a mistyped token costs no look-up.
"""

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Self
from zlib import crc32

from common.errors import NotAuthenticated

PREFIX = "pkgr_"
PATTERN = r"pkgr_[0-9a-f]{16}_[0-9A-Za-z]{49}"
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
        if not re.fullmatch(PATTERN, text) or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
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
    text = f"{PREFIX}{token_id}_{_base62(number, _SECRET_LENGTH)}"
    return text + _checksum(text)


def _checksum(text: str) -> str:
    return _base62(crc32(text.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
