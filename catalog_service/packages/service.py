"""Manages the packages of a tenant."""

from catalog_service.model.packages import Package, PackageChanges, PackageNotFound
from catalog_service.packages.store import MongoPackageStore
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller


class Packages:
    """Adds, edits, hides and deletes packages."""

    def __init__(self, store: MongoPackageStore, versions: Versions) -> None:
        self._store = store
        self._versions = versions

    async def add(self, caller: Caller, package: Package) -> None:
        """Raises PackageExists."""
        caller.require_package(package.package_id)
        await self._store.add(caller.tenant_id, package)

    async def find(self, caller: Caller, package_id: str) -> Package:
        """Raises PackageNotFound."""
        package = await self._store.find(caller.tenant_id, package_id)
        if package is None:
            raise PackageNotFound(package_id=package_id)
        return package

    async def edit(self, caller: Caller, package_id: str, changes: PackageChanges) -> dict[str, tuple[str, str]]:
        """Change a package. Return old and new values by field for the audit log. Raises PackageNotFound."""
        caller.require_package(package_id)
        before = (await self._store.change(caller.tenant_id, package_id, changes)).to_audit_texts()
        return {name: (before[name], after) for name, after in changes.to_audit_texts().items()}

    async def delete(self, caller: Caller, package_id: str) -> None:
        """Delete a package with its versions and files. It is hidden first and removed last, so a retry finishes it.

        Its id stays taken until the end. Raises PackageNotFound, or Unavailable if the files could not be removed yet.
        """
        caller.require_package(package_id)
        package_uid = await self._store.begin_deletion(caller.tenant_id, package_id)
        await self.finish_deletion(caller, package_uid)

    async def finish_deletion(self, caller: Caller, package_uid: str) -> None:
        """Continue a deletion. Raises Unavailable."""
        await self._versions.remove_all(caller, package_uid)
        await self._store.end_deletion(caller.tenant_id, package_uid)
