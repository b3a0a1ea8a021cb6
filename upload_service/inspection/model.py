"""Inspections and their findings. Findings are what the file states; only `signature` is verified."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

TEXT_LIMIT = 256  # characters
VERSION_LIMIT = 128
PATH_LIMIT = 512
NAME_LIMIT = 512  # characters of the subject of a certificate
REASON_LIMIT = 256
NESTED_LIMIT = 100  # files of an archive

# The first bytes of an installer; there is nothing to find in any other file.
PROGRAM_MAGIC = b"MZ"
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # of an MSI
ARCHIVE_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # the second of an empty archive
MAGICS = (PROGRAM_MAGIC, OLE_MAGIC, *ARCHIVE_MAGIC)
MAGIC_LENGTH = 8  # bytes of the longest

DAMAGED_STATUS = 3  # exit status of the inspection process for a file that is not what its first bytes say

_GUID = re.compile(r"\{[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Format(StrEnum):
    """The type of a file, by its signature; the values are those of the interface's FileType.

    `EXE` is a portable program or an unknown kind of installer. `WIX` is an MSI that WiX made.
    """

    UNKNOWN = ""
    EXE = "EXE"
    MSI = "MSI"
    MSIX = "MSIX"
    APPX = "APPX"
    ZIP = "ZIP"
    INNO = "INNO"
    NULLSOFT = "NULLSOFT"
    WIX = "WIX"
    BURN = "BURN"


class Machine(StrEnum):
    """The architecture of an installer, as the interface's Architecture; unknown also for a neutral one."""

    UNKNOWN = ""
    X64 = "x64"
    X86 = "x86"
    ARM = "arm"
    ARM64 = "arm64"


class Reach(StrEnum):
    """The scope of an installer, as the interface's Scope; unknown if the user may choose."""

    UNKNOWN = ""
    MACHINE = "machine"
    USER = "user"


@dataclass(frozen=True)
class Signer:
    """The subject and the issuer of the certificate that signed a file, as the file states."""

    subject: str
    issuer: str


@dataclass(frozen=True)
class Nested:
    """A file in an archive that may be its installer."""

    path: str
    format: Format


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


@dataclass(frozen=True)
class Findings:
    """The findings; texts are "" if nothing was found, and a GUID has braces and capital letters.

    `signature_sha256` is the hexadecimal digest of the signature file of an MSIX or APPX. `signature` is the verdict
    about the file's signatures; None if they were not verified yet.
    """

    format: Format = Format.UNKNOWN
    machine: Machine = Machine.UNKNOWN
    reach: Reach = Reach.UNKNOWN
    version: str = ""
    product_name: str = ""
    publisher: str = ""
    product_code: str = ""
    upgrade_code: str = ""
    package_family_name: str = ""
    signature_sha256: str = ""
    nested: tuple[Nested, ...] = ()
    signer: Signer | None = None
    signature: Signature | None = None

    def to_document(self) -> dict[str, Any]:
        """The form in JSON and MongoDB, which `parse` reads."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Validate a document. Raises ValueError, KeyError, TypeError or AttributeError."""
        signer, nested, signature = document["signer"], document["nested"], document["signature"]
        if len(nested) > NESTED_LIMIT:
            raise ValueError("too many nested files")
        return cls(
            format=Format(document["format"]),
            machine=Machine(document["machine"]),
            reach=Reach(document["reach"]),
            version=clean_text(document["version"], VERSION_LIMIT),
            product_name=clean_text(document["product_name"]),
            publisher=clean_text(document["publisher"]),
            product_code=normalize_guid(document["product_code"]),
            upgrade_code=normalize_guid(document["upgrade_code"]),
            package_family_name=clean_text(document["package_family_name"]),
            signature_sha256=_digest(document["signature_sha256"]),
            nested=tuple(Nested(clean_text(file["path"], PATH_LIMIT), Format(file["format"])) for file in nested),
            signer=Signer(clean_text(signer["subject"]), clean_text(signer["issuer"])) if signer else None,
            signature=Signature.parse(signature) if signature else None,
        )


class State(StrEnum):
    """The state of an inspection."""

    PENDING = "waiting"
    DONE = "done"
    FAILED = "failed"


class Reason(StrEnum):
    """Why an inspection failed."""

    DAMAGED = "damaged"  # The file is not what its first bytes say.
    TOO_LONG = "too_long"
    TOO_MUCH_MEMORY = "too_much_memory"
    ENDED_EARLY = "ended_early"  # The process failed otherwise, or printed no findings.
    GIVEN_UP = "given_up"  # Three attempts did not end.


@dataclass(frozen=True)
class Inspection:
    """The inspection of a file, with the `reason` of a failed one and the `findings` of one that is done."""

    server_filename: str
    state: State
    reason: str = ""
    findings: Findings = field(default_factory=Findings)


def clean_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """A text without white space around it; "" if it is too long or has control characters."""
    plain = unicodedata.normalize("NFC", text.strip(" \t\r\n\0"))
    if len(plain) > limit or any(unicodedata.category(character) in {"Cc", "Cs", "Cn"} for character in plain):
        return ""
    return plain


def normalize_guid(text: str) -> str:
    """A GUID in braces and capital letters; "" for anything else."""
    plain = text.strip().upper()
    return plain if _GUID.fullmatch(plain) else ""


def _digest(text: str) -> str:
    """A SHA-256 in hexadecimal; "" for anything else."""
    return text if _SHA256.fullmatch(text) else ""


def _text(text: str, limit: int) -> str:
    if len(text) > limit or not text.isprintable():
        raise ValueError("not a printable text")
    return text


def _time(text: str) -> str:
    return text and datetime.fromisoformat(text).isoformat()
