"""Finds packages for administrators, a page at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from hashlib import sha256

from catalog_service.catalog.reader import VersionReader
from catalog_service.model.manifest.rules import package_refusal
from catalog_service.model.ordering import newest_first
from catalog_service.model.packages import PackageNotFound
from catalog_service.model.versions import PackageVersion
from catalog_service.packages.model import PackageQuery, PackageSummary
from catalog_service.packages.store import MongoPackageStore
from common.auth.internal_tokens import Caller
from common.errors import NotFound


class LogoNotFound(NotFound):
    code = "logo_not_found"
    text = "The package {package_id!r} has no logo."


class PackageSearch:
    """Finds packages of a tenant."""

    def __init__(self, packages: MongoPackageStore, read_versions: VersionReader[PackageVersion]) -> None:
        """`read_versions` may yield versions with the fields of winget's rules only."""
        self._packages = packages
        self._read_versions = read_versions

    async def page(self, caller: Caller, query: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
        """Return the packages of a page, and the number of packages on all pages."""
        summaries, total = await self._packages.summaries(caller.tenant_id, query)
        ids = [summary.package_id for summary in summaries]
        logos, versions = await asyncio.gather(
            self._packages.logos(caller.tenant_id, ids), self._versions(caller.tenant_id, ids)
        )
        packages = []
        for summary in summaries:
            ordered = newest_first(versions[summary.package_id])
            row = replace(
                summary,
                versions=len(ordered),
                newest_version=ordered[0].version if ordered else "",
                logo=logo_tag(logos.get(summary.package_id, b"")),
                winget_refusal=package_refusal(summary.package_id, ordered),
            )
            packages.append(row)
        return packages, total

    async def first_unknown(self, caller: Caller, package_ids: Sequence[str]) -> tuple[str, str] | None:
        """Return the first id that no package has, and the most similar id that exists or ""; None if all exist."""
        existing = await self._packages.ids(caller.tenant_id, package_ids)
        unknown = next((package_id for package_id in package_ids if package_id not in existing), None)
        if unknown is None:
            return None
        return unknown, await asyncio.to_thread(_most_similar, unknown, await self._packages.ids(caller.tenant_id))

    async def logo(self, caller: Caller, package_id: str) -> bytes:
        """Return the logo, a PNG image. Raises PackageNotFound, or LogoNotFound if the package has none."""
        logos = await self._packages.logos(caller.tenant_id, [package_id])
        if package_id not in logos:
            raise PackageNotFound(package_id=package_id)
        if not logos[package_id]:
            raise LogoNotFound(package_id=package_id)
        return logos[package_id]

    async def _versions(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, Sequence[PackageVersion]]:
        by_package: dict[str, list[PackageVersion]] = defaultdict(list)
        async for versions in self._read_versions(tenant_id, package_ids):
            for version in versions:
                by_package[version.package_id].append(version)
        return by_package


def _most_similar(package_id: str, package_ids: Sequence[str]) -> str:
    by_key = {candidate.casefold(): candidate for candidate in package_ids}
    keys = get_close_matches(package_id.casefold(), by_key, n=1)
    return by_key[keys[0]] if keys else ""


def logo_tag(logo: bytes) -> str:
    """Return an identifier of a logo's content, "" for no logo."""
    return sha256(logo).hexdigest()[:16] if logo else ""
