"""What administrators look for among their packages, and what a list of them shows of each."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

from catalog_service.model.ordering import newest_first
from catalog_service.model.packages import PackageNotFound
from catalog_service.model.versions import VersionName
from common.auth.callers import Caller
from common.errors import NotFound


class Order(StrEnum):
    """By which of its values a package has its place; its id decides between equals."""

    ID = "id"
    NAME = "name"
    PUBLISHER = "publisher"
    ACTIVE = "active"


@dataclass(frozen=True)
class PackageQuery:
    """Which packages: `text` stands in their id, name or publisher, whatever its letter case; None: `active` or not."""

    text: str = ""
    active: bool | None = None
    order: Order = Order.ID
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class PackageSummary:
    """A package without what is long of it."""

    package_id: str
    name: str
    publisher: str
    active: bool


@dataclass(frozen=True)
class FoundPackage:
    """A package as a list shows it, with its newest version; `logo` changes with its picture, "" where it has none."""

    summary: PackageSummary
    versions: int
    newest_version: str
    logo: str


class LogoNotFound(NotFound):
    code = "logo_not_found"

    def __init__(self, package_id: str) -> None:
        super().__init__(f"The package {package_id!r} has no logo.")


class SummaryStore(Protocol):
    """Where packages are kept."""

    async def summaries(self, tenant_id: str, wanted: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
        """Those on the wanted page, in order, and how many there are on all pages."""

    async def logos(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, bytes]:
        """The logos of those of these packages that are there, empty ones too."""


class VersionNameStore(Protocol):
    """Where versions are kept."""

    def names(self, tenant_id: str, package_ids: Collection[str]) -> AsyncIterator[Sequence[VersionName]]: ...


class PackageSearch:
    """Finds packages of a tenant, a page at a time."""

    def __init__(self, packages: SummaryStore, versions: VersionNameStore) -> None:
        self._packages = packages
        self._versions = versions

    async def page(self, caller: Caller, wanted: PackageQuery) -> tuple[Sequence[FoundPackage], int]:
        """The packages of the wanted page, and how many there are on all pages."""
        headings, total = await self._packages.summaries(caller.tenant_id, wanted)
        ids = [heading.package_id for heading in headings]
        logos, versions = await asyncio.gather(
            self._packages.logos(caller.tenant_id, ids), self._names(caller.tenant_id, ids)
        )
        found = []
        for heading in headings:
            names = newest_first(versions[heading.package_id])
            logo = logo_tag(logos.get(heading.package_id, b""))
            found.append(FoundPackage(heading, len(names), names[0].version if names else "", logo))
        return found, total

    async def logo(self, caller: Caller, package_id: str) -> bytes:
        """A PNG image.

        Raises:
            PackageNotFound: there is no such package.
            LogoNotFound: it has none.
        """
        found = await self._packages.logos(caller.tenant_id, [package_id])
        if package_id not in found:
            raise PackageNotFound(package_id)
        if not found[package_id]:
            raise LogoNotFound(package_id)
        return found[package_id]

    async def _names(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        by_package: dict[str, list[VersionName]] = defaultdict(list)
        async for names in self._versions.names(tenant_id, package_ids):
            for name in names:
                by_package[name.package_id].append(name)
        return by_package


def logo_tag(logo: bytes) -> str:
    """What names a logo among all that there may be; "" where there is none."""
    return sha256(logo).hexdigest()[:16] if logo else ""
