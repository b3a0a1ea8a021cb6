"""Packages with their manifests, and queries for packages."""

from dataclasses import dataclass
from enum import StrEnum

from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package


@dataclass(frozen=True)
class DescribedPackage:
    """A package with its manifest, which the catalog does not show."""

    package: Package
    manifest: PackageManifest

    @property
    def package_id(self) -> str:
        return self.package.package_id


class Order(StrEnum):
    """The sort key of packages; equal ones are sorted by id."""

    ID = "id"
    NAME = "name"
    PUBLISHER = "publisher"
    ACTIVE = "active"


@dataclass(frozen=True)
class PackageQuery:
    """A query: `text` is part of the id, name or publisher, in any letter case; `active` None is both."""

    text: str = ""
    active: bool | None = None
    order: Order = Order.ID
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class PackageSummary:
    """A package without its long fields."""

    package_id: str
    name: str
    publisher: str
    active: bool
