"""The identities by which winget clients find the package of a program that is installed on a machine.

A search by an identity returns every package that has it. Clients may then offer one package for the other's program.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from catalog_service.model.program_names import normalized
from common.errors import Forbidden


class IdentityKind(StrEnum):
    """The kinds, by the names of form fields."""

    PRODUCT_CODE = "productcode"
    UPGRADE_CODE = "upgradecode"
    FAMILY_NAME = "package_family_name"
    NAME = "package_name"  # clients send no publisher with a name


@dataclass(frozen=True, order=True)
class SharedIdentity:
    """An identity that another package has, too. `value` is in lower case, and a name without its version."""

    package_id: str
    kind: IdentityKind
    value: str

    @classmethod
    def of(cls, package_id: str, identity: str) -> Self:
        """Return one of the identities of `identities_of`, with its package."""
        kind, _, value = identity.partition(":")
        return cls(package_id, IdentityKind(kind), value)


class IdentityTaken(Forbidden):
    """A restricted token gives a package an identity of a package that the token may not change."""

    code = "identity_taken"
    text = (
        "The package {package_id!r} has the {field} {value!r}, too, and this token may not change that package. winget "
        "would confuse the two; ask an administrator to publish this one."
    )


def identities_of(values: Mapping[IdentityKind, Iterable[str]]) -> list[str]:
    """Return the identities with these values as texts, each once; an empty value is none."""
    keys = {
        (kind, folded(normalized(text) if kind is IdentityKind.NAME else text))
        for kind, texts in values.items()
        for text in texts
    }
    return sorted(f"{kind}:{key}" for kind, key in keys if key)


def folded(text: str) -> str:
    """Return the same text for all spellings that differ in letter case only."""
    if text.isascii():
        return text.casefold()
    # Normalize again: a capital may fold into parts of a composed letter.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
