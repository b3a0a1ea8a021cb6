"""Finds packages for administrators, a page at a time."""

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


@dataclass(frozen=True)
class FoundPackage:
    """A package in a list. `logo` changes with the image, "" for none."""

    summary: PackageSummary
    versions: int
    newest_version: str
    logo: str


class LogoNotFound(NotFound):
    code = "logo_not_found"

    def __init__(self, package_id: str) -> None:
        super().__init__(f"The package {package_id!r} has no logo.")


class SummaryStore(Protocol):
    async def summaries(self, tenant_id: str, query: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
        """Return the packages of a page in order, and the number of packages on all pages."""

    async def logos(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, bytes]:
        """Return the logos, possibly empty, of those packages that exist."""


class VersionNameStore(Protocol):
    def names(self, tenant_id: str, package_ids: Collection[str]) -> AsyncIterator[Sequence[VersionName]]: ...


class PackageSearch:
    """Finds packages of a tenant."""

    def __init__(self, packages: SummaryStore, versions: VersionNameStore) -> None:
        self._packages = packages
        self._versions = versions

    async def page(self, caller: Caller, query: PackageQuery) -> tuple[Sequence[FoundPackage], int]:
        """Return the packages of a page, and the number of packages on all pages."""
        summaries, total = await self._packages.summaries(caller.tenant_id, query)
        ids = [summary.package_id for summary in summaries]
        logos, versions = await asyncio.gather(
            self._packages.logos(caller.tenant_id, ids), self._names(caller.tenant_id, ids)
        )
        packages = []
        for summary in summaries:
            names = newest_first(versions[summary.package_id])
            logo = logo_tag(logos.get(summary.package_id, b""))
            packages.append(FoundPackage(summary, len(names), names[0].version if names else "", logo))
        return packages, total

    async def logo(self, caller: Caller, package_id: str) -> bytes:
        """Return the logo, a PNG image.

        Raises:
            PackageNotFound: there is no such package.
            LogoNotFound: it has none.
        """
        logos = await self._packages.logos(caller.tenant_id, [package_id])
        if package_id not in logos:
            raise PackageNotFound(package_id)
        if not logos[package_id]:
            raise LogoNotFound(package_id)
        return logos[package_id]

    async def _names(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        by_package: dict[str, list[VersionName]] = defaultdict(list)
        async for names in self._versions.names(tenant_id, package_ids):
            for name in names:
                by_package[name.package_id].append(name)
        return by_package


def logo_tag(logo: bytes) -> str:
    """Return an identifier of a logo's content, "" for no logo."""
    return sha256(logo).hexdigest()[:16] if logo else ""
