"""Manages the packages of a tenant."""

from collections.abc import Iterable, Mapping, Sequence

from catalog_service.identities.service import Identities, normalize_names
from catalog_service.model.identities import IdentityKind, IdentityTaken, SharedIdentity, identities_of
from catalog_service.model.packages import Package, PackageChanges, PackageNotFound
from catalog_service.packages.store import MongoPackageStore
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller


class Packages:
    """Adds, edits, hides and deletes packages."""

    def __init__(self, store: MongoPackageStore, versions: Versions, identities: Identities) -> None:
        self._store = store
        self._versions = versions
        self._identities = identities

    async def add(self, caller: Caller, package: Package) -> None:
        """Raises PackageExists, or IdentityTaken for a restricted token."""
        caller.require_package(package.package_id)
        await normalize_names(package)
        if not caller.is_restricted:
            await self._store.add(caller.tenant_id, package)
            return
        # Two tokens that add packages with one identity at once find each other's hidden package.
        await self._store.add_hidden(caller.tenant_id, package)
        try:
            await self._require_free_identities(caller, package.package_id, package.identities)
        except IdentityTaken:
            await self._store.end_deletion(caller.tenant_id, package.package_uid)
            raise
        await self._store.show(caller.tenant_id, package)

    async def find(self, caller: Caller, package_id: str) -> Package:
        """Raises PackageNotFound."""
        package = await self._store.find(caller.tenant_id, package_id)
        if package is None:
            raise PackageNotFound(package_id=package_id)
        return package

    async def edit(self, caller: Caller, package_id: str, changes: PackageChanges) -> dict[str, tuple[str, str]]:
        """Change a package. Return old and new values by field for the audit log.

        Raises PackageNotFound, or IdentityTaken for a restricted token.
        """
        caller.require_package(package_id)
        await normalize_names(changes)
        if caller.is_restricted:
            await self._require_free_identities(caller, package_id, changes.identities)
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

    async def shared_identities(
        self, caller: Caller, package_id: str, values: Mapping[IdentityKind, Iterable[str]]
    ) -> Sequence[SharedIdentity]:
        """Return which of these identities other packages have, too."""
        return await self._identities.shared(caller.tenant_id, package_id, identities_of(values))

    async def _require_free_identities(
        self, caller: Caller, package_id: str, identities: Mapping[str, Sequence[str]]
    ) -> None:
        """Raise IdentityTaken. `identities` are by the fields of documents."""
        every = [identity for of_field in identities.values() for identity in of_field]
        await self._identities.require_free(caller.tenant_id, package_id, every, caller.packages)
