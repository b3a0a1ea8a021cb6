"""The verdict about the signatures of a file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

NAME_LIMIT = 512  # characters of the subject of a certificate
REASON_LIMIT = 256


class SignatureState(StrEnum):
    """The result of a verification; the later of two states is the one of a file with both, see `worst`."""

    VALID = "valid"
    EXPIRED = "expired"
    UNTRUSTED = "untrusted"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    UNSIGNED = "unsigned"
    PENDING = "pending"


class SignatureProblem(Exception):
    """A signature is not valid; the text is plain English for users."""

    state: SignatureState


class Altered(SignatureProblem):
    """The file or its signature is not as its signer left it."""

    state = SignatureState.INVALID


class Unsupported(SignatureProblem):
    """The signature is of a kind that is not verified."""

    state = SignatureState.UNSUPPORTED


class Untrusted(SignatureProblem):
    """A certificate of the signature leads to no trusted one."""

    state = SignatureState.UNTRUSTED


class Expired(SignatureProblem):
    """The certificate of the signer expired before a known time of the signature."""

    state = SignatureState.EXPIRED


@dataclass(frozen=True)
class Signature:
    """The verdict. `signer` and `issuer` are names of a certificate as RFC 4514 texts, "" if none was found.

    `signed_at` is the time of a verified timestamp and `at` the time of the verification, both in ISO 8601 or "".
    The store sets `at`, by the clock of the database.
    """

    state: SignatureState
    reason: str = ""
    signer: str = ""
    issuer: str = ""
    signed_at: str = ""
    at: str = ""

    def to_document(self) -> dict[str, Any]:
        """The form in JSON and MongoDB, which `parse` reads."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Validate a document. Raises ValueError, KeyError or TypeError."""
        return cls(
            SignatureState(document["state"]),
            _text(document["reason"], REASON_LIMIT),
            _text(document["signer"], NAME_LIMIT),
            _text(document["issuer"], NAME_LIMIT),
            _time(document["signed_at"]),
            _time(document["at"]),
        )


def worst(signatures: list[Signature]) -> Signature:
    """The verdict about a file with these signatures: the worst one. A valid file has the signer of the first."""
    order = list(SignatureState)
    return max(signatures, key=lambda signature: order.index(signature.state))


def _text(text: str, limit: int) -> str:
    if len(text) > limit or not text.isprintable():
        raise ValueError("not a printable text")
    return text


def _time(text: str) -> str:
    return text and datetime.fromisoformat(text).isoformat()
