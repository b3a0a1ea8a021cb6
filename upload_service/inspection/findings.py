"""What can be found in an installer. All of it is the installer's own word: nothing is verified."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

TEXT_LIMIT = 256  # characters
VERSION_LIMIT = 128
PATH_LIMIT = 512
NESTED_LIMIT = 100  # files of an archive

_GUID = re.compile(r"\{[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Format(StrEnum):
    """What a file is, by its signature; the values are those of the interface's FileType (section 2.4).

    A portable program and an installer of no known kind look alike: both are `EXE`. `WIX` is an MSI that WiX made.
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
    """What an installer runs on, as the interface's Architecture; unknown also where one is made for any."""

    UNKNOWN = ""
    X64 = "x64"
    X86 = "x86"
    ARM = "arm"
    ARM64 = "arm64"


class Reach(StrEnum):
    """For whom an installer installs, as the interface's Scope, where it leaves no choice."""

    UNKNOWN = ""
    MACHINE = "machine"
    USER = "user"


@dataclass(frozen=True)
class Signer:
    """Whose certificate signed a file, and whose certificate vouches for that one, as the file states."""

    subject: str
    issuer: str


@dataclass(frozen=True)
class Nested:
    """A file of an archive that may be the installer in it."""

    path: str
    format: Format


@dataclass(frozen=True)
class Findings:
    """Texts are "" where nothing was found; a GUID has braces and capital letters.

    `signature_sha256` is the hexadecimal digest of the signature file of an MSIX or APPX.
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

    def to_document(self) -> dict[str, Any]:
        """As JSON and MongoDB hold it; `parse` reads it."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """What a reader said, which may be anything. Raises ValueError, KeyError, TypeError or AttributeError."""
        signer, nested = document["signer"], document["nested"]
        if len(nested) > NESTED_LIMIT:
            raise ValueError("more nested files than are ever told")
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
            signature_sha256=_digest(document.get("signature_sha256", "")),  # Releases up to 0.1.0 did not look for it.
            nested=tuple(Nested(clean_text(file["path"], PATH_LIMIT), Format(file["format"])) for file in nested),
            signer=Signer(clean_text(signer["subject"]), clean_text(signer["issuer"])) if signer else None,
        )


def clean_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """A text as it may be shown and stored: no control characters around or in it, and not cut; else ""."""
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
