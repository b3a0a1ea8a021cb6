"""Queries for packages, and their results."""

from dataclasses import dataclass
from enum import StrEnum

from catalog_service.model.manifest.rules import Refusal


class Order(StrEnum):
    """The sort key of packages; equal ones are sorted by id."""

    ID = "id"
    NAME = "name"
    PUBLISHER = "publisher"
    ACTIVE = "active"


@dataclass(frozen=True)
class PackageQuery:
    """A query: `text` is part of the id, name or publisher, in any letter case; `active` None is both.

    No `package_ids` select all packages.
    """

    text: str = ""
    package_ids: tuple[str, ...] = ()
    active: bool | None = None
    order: Order = Order.ID
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class PackageSummary:
    """A package without its long fields, in a list. `logo` changes with the image, "" for none.

    `winget_refusal` is the reason why winget clients see no version of it, if any.
    """

    package_id: str
    name: str
    publisher: str
    active: bool
    versions: int = 0
    newest_version: str = ""
    logo: str = ""
    winget_refusal: Refusal | None = None
