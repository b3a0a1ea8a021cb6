"""Manages the packages of a tenant, and finds them for administrators."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256

from catalog_service.catalog.reader import VersionReader
from catalog_service.identities.service import Identities
from catalog_service.model.identities import IdentityKind, IdentityTaken, SharedIdentity, identities_of, normalize_names
from catalog_service.model.packages import Package, PackageChanges, PackageNotFound, PackageQuery, PackageSummary
from catalog_service.model.versions import PackageVersion, VersionName, newest_first
from catalog_service.model.winget_rules import package_refusal
from catalog_service.packages.store import MongoPackageStore
from catalog_service.versions.service import SWEEP_AGE, Versions
from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import InvalidField, NotFound
from common.tenants import Tenant


class LogoNotFound(NotFound):
    code = "logo_not_found"
    text = "The package {package_id!r} has no logo."


class PackageUnknown(InvalidField):
    """No package has an id of the form. `nearest` is the most similar id that exists, "" for none."""

    def __init__(self, package_id: str, nearest: str) -> None:
        message = f"there is no package {package_id!r}" + (f"; did you mean {nearest!r}?" if nearest else "")
        reason = "package_unknown_but_similar" if nearest else "package_unknown"
        super().__init__("package_ids", message, reason=reason, package_id=package_id, nearest=nearest)


@dataclass(frozen=True)
class Packages:
    """Adds, finds, edits, hides and deletes packages.

    `read_rule_versions` may yield versions with the fields of winget's rules only.
    """

    store: MongoPackageStore
    versions: Versions
    read_rule_versions: VersionReader[PackageVersion]
    identities: Identities

    async def add(self, caller: Caller, package: Package) -> None:
        """Raises PackageExists, or IdentityTaken for a restricted token."""
        caller.require_package(package.package_id)
        await normalize_names(package)
        if not caller.is_restricted:
            await self.store.add(caller.tenant_id, package)
            return
        # Two tokens that add packages with one identity at once find each other's hidden package.
        await self.store.add_hidden(caller.tenant_id, package)
        try:
            await self._require_free_identities(caller, package.package_id, package.identities)
        except IdentityTaken:
            await self.store.end_deletion(caller.tenant_id, package.package_uid)
            raise
        await self.store.show(caller.tenant_id, package)

    async def find(self, caller: Caller, package_id: str) -> Package:
        """Raises PackageNotFound."""
        package = await self.store.find(caller.tenant_id, package_id)
        if package is None:
            raise PackageNotFound(package_id=package_id)
        return package

    async def edit(
        self, caller: Caller, package_id: str, changes: PackageChanges, edits: int | None = None
    ) -> dict[str, tuple[str, str]]:
        """Change a package. Return old and new values by field for the audit log.

        Raises PackageNotFound, PackageChanged after more than these `edits`, or IdentityTaken for a restricted token.
        """
        caller.require_package(package_id)
        await normalize_names(changes)
        if caller.is_restricted:
            await self._require_free_identities(caller, package_id, changes.identities)
        before = (await self.store.change(caller.tenant_id, package_id, changes, edits)).to_audit_texts()
        return {name: (before[name], after) for name, after in changes.to_audit_texts().items()}

    async def delete(self, caller: Caller, package_id: str) -> None:
        """Delete a package with its versions and files. It is hidden first and removed last, so a retry finishes it.

        Its id stays taken until the end. Raises PackageNotFound, or Unavailable if the files could not be removed yet.
        """
        caller.require_package(package_id)
        package_uid = await self.store.begin_deletion(caller.tenant_id, package_id)
        await self.finish_deletion(caller, package_uid)

    async def finish_deletion(self, caller: Caller, package_uid: str) -> None:
        """Continue a deletion. Raises Unavailable."""
        await self.versions.remove_all(caller, package_uid)
        await self.store.end_deletion(caller.tenant_id, package_uid)

    async def sweep(self) -> None:
        """Continue deletions that stopped a minute ago, for all tenants, as `Versions.sweep` does."""

        async def finish(deletion: tuple[str, str]) -> None:
            tenant_id, package_uid = deletion
            await self.finish_deletion(Caller.service(Tenant(tenant_id)), package_uid)

        await with_each("sweeper", await self.store.find_unfinished(SWEEP_AGE), finish)

    async def shared_identities(
        self, caller: Caller, package_id: str, values: Mapping[IdentityKind, Iterable[str]]
    ) -> Sequence[SharedIdentity]:
        """Return which of these identities other packages have, too."""
        return await self.identities.shared(caller.tenant_id, package_id, identities_of(values))

    async def _require_free_identities(
        self, caller: Caller, package_id: str, identities: Mapping[str, Sequence[str]]
    ) -> None:
        """Raise IdentityTaken. `identities` are by the fields of documents."""
        every = [identity for of_field in identities.values() for identity in of_field]
        await self.identities.require_free(caller.tenant_id, package_id, every, caller.packages)

    async def page(self, caller: Caller, query: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
        """Return the packages of a page, and the number of packages on all pages."""
        summaries, total = await self.store.summaries(caller.tenant_id, query)
        ids = [summary.package_id for summary in summaries]
        logos, versions = await asyncio.gather(
            self.store.logos(caller.tenant_id, ids), self._rule_versions(caller.tenant_id, ids)
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

    async def search(
        self, caller: Caller, text: str, limit: int
    ) -> tuple[Sequence[PackageSummary], Sequence[VersionName]]:
        """Return the packages and versions that match best, of those that a restricted token may change."""
        query = (caller.tenant_id, text, caller.packages, limit)
        return await asyncio.gather(self.store.search(*query), self.versions.store.search(*query))

    async def check_ids(self, caller: Caller, package_ids: Sequence[str]) -> None:
        """Raise PackageUnknown for the first id that no package has."""
        existing = await self.store.ids(caller.tenant_id, package_ids)
        unknown = next((package_id for package_id in package_ids if package_id not in existing), None)
        if unknown is not None:
            all_ids = await self.store.ids(caller.tenant_id)
            raise PackageUnknown(unknown, await asyncio.to_thread(_most_similar, unknown, all_ids))

    async def logo(self, caller: Caller, package_id: str) -> bytes:
        """Return the logo, a PNG image. Raises PackageNotFound, or LogoNotFound if the package has none."""
        logos = await self.store.logos(caller.tenant_id, [package_id])
        if package_id not in logos:
            raise PackageNotFound(package_id=package_id)
        if not logos[package_id]:
            raise LogoNotFound(package_id=package_id)
        return logos[package_id]

    async def _rule_versions(self, tenant_id: str, ids: Collection[str]) -> Mapping[str, Sequence[PackageVersion]]:
        by_package: dict[str, list[PackageVersion]] = defaultdict(list)
        async for versions in self.read_rule_versions(tenant_id, ids):
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
