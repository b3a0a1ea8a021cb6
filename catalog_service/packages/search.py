"""Finds packages for administrators, a page at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from catalog_service.catalog.reader import VersionReader
from catalog_service.model.ordering import newest_first
from catalog_service.model.packages import PackageNotFound
from catalog_service.model.versions import VersionName
from catalog_service.packages.model import PackageQuery, PackageSummary
from catalog_service.packages.store import MongoPackageStore
from common.auth.internal_tokens import Caller
from common.errors import NotFound


class LogoNotFound(NotFound):
    code = "logo_not_found"
    text = "The package {package_id!r} has no logo."


class PackageSearch:
    """Finds packages of a tenant."""

    def __init__(self, packages: MongoPackageStore, read_names: VersionReader[VersionName]) -> None:
        self._packages = packages
        self._read_names = read_names

    async def page(self, caller: Caller, query: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
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
            newest = names[0].version if names else ""
            packages.append(replace(summary, versions=len(names), newest_version=newest, logo=logo))
        return packages, total

    async def logo(self, caller: Caller, package_id: str) -> bytes:
        """Return the logo, a PNG image.

        Raises:
            PackageNotFound: there is no such package.
            LogoNotFound: it has none.
        """
        logos = await self._packages.logos(caller.tenant_id, [package_id])
        if package_id not in logos:
            raise PackageNotFound(package_id=package_id)
        if not logos[package_id]:
            raise LogoNotFound(package_id=package_id)
        return logos[package_id]

    async def _names(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        by_package: dict[str, list[VersionName]] = defaultdict(list)
        async for names in self._read_names(tenant_id, package_ids):
            for name in names:
                by_package[name.package_id].append(name)
        return by_package


def logo_tag(logo: bytes) -> str:
    """Return an identifier of a logo's content, "" for no logo."""
    return sha256(logo).hexdigest()[:16] if logo else ""
