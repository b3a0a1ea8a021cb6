"""Manages the packages of a tenant, and reads which ones are hidden from a client."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package, PackageChanges, PackageNotFound
from common.auth.callers import Caller, Kind


@dataclass(frozen=True)
class DescribedPackage:
    """A package with its manifest, which the catalog does not show."""

    package: Package
    manifest: PackageManifest

    @property
    def package_id(self) -> str:
        return self.package.package_id


class PackageStore(Protocol):
    """Stores packages. Only `begin_deletion` finds a package whose deletion has begun."""

    async def add(self, tenant_id: str, package: Package, manifest: PackageManifest) -> None:
        """Raises PackageExists."""

    async def find(self, tenant_id: str, package_id: str) -> DescribedPackage | None: ...

    async def change(self, tenant_id: str, package_id: str, changes: PackageChanges) -> PackageChanges:
        """Return the old values of the changed fields. Raises PackageNotFound."""

    async def begin_deletion(self, tenant_id: str, package_id: str) -> str:
        """Hide the package and return its `package_uid`; may be repeated. Raises PackageNotFound."""

    async def end_deletion(self, tenant_id: str, package_uid: str) -> None: ...


class VersionRemover(Protocol):
    async def remove_all(self, caller: Caller, package_uid: str) -> None:
        """Remove all versions of a package, with their files."""


class Blacklist(Protocol):
    async def hidden_packages(self, caller: Caller) -> Set[str]:
        """Return the ids of the packages hidden from a client."""


class Packages:
    """Adds, edits, hides and deletes packages (section 4.3)."""

    def __init__(self, store: PackageStore, versions: VersionRemover, blacklist: Blacklist) -> None:
        self._store = store
        self._versions = versions
        self._blacklist = blacklist

    async def hidden_from(self, caller: Caller) -> frozenset[str]:
        """Return the ids of the packages hidden from this caller (section 4.2).

        Raises Unavailable if the blacklist cannot be read: it never counts as empty.
        """
        return frozenset(await self._blacklist.hidden_packages(caller) if caller.kind is Kind.CLIENT else ())

    async def add(self, caller: Caller, described: DescribedPackage) -> None:
        """Raises PackageExists."""
        await self._store.add(caller.tenant_id, described.package, described.manifest)

    async def find(self, caller: Caller, package_id: str) -> DescribedPackage:
        """Raises PackageNotFound."""
        described = await self._store.find(caller.tenant_id, package_id)
        if described is None:
            raise PackageNotFound(package_id)
        return described

    async def edit(self, caller: Caller, package_id: str, changes: PackageChanges) -> dict[str, tuple[str, str]]:
        """Change a package. Return old and new values by field for the audit log. Raises PackageNotFound."""
        before = (await self._store.change(caller.tenant_id, package_id, changes)).to_audit_texts()
        return {name: (before[name], after) for name, after in changes.to_audit_texts().items()}

    async def delete(self, caller: Caller, package_id: str) -> None:
        """Delete a package with its versions and files. It is hidden first and removed last, so a retry finishes it.

        Its id stays taken until the end.

        Raises:
            PackageNotFound: there is none.
            Unavailable: the files could not be removed yet.
        """
        package_uid = await self._store.begin_deletion(caller.tenant_id, package_id)
        await self.finish_deletion(caller, package_uid)

    async def finish_deletion(self, caller: Caller, package_uid: str) -> None:
        """Continue a deletion. Raises Unavailable."""
        await self._versions.remove_all(caller, package_uid)
        await self._store.end_deletion(caller.tenant_id, package_uid)
