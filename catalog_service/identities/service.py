"""Keeps restricted tokens from giving their packages the identities of other packages."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.identities.store import MongoIdentityStore
from catalog_service.model.identities import IdentityTaken, SharedIdentity, normalize_names
from catalog_service.model.versions import PackageVersion
from common.auth.roles import matches

MOST_SHARED = 20  # of one answer


@dataclass(frozen=True)
class Identities:
    """Compares the identities of a package or version with those of the tenant's other packages."""

    store: MongoIdentityStore

    async def shared(self, tenant_id: str, package_id: str, identities: Sequence[str]) -> Sequence[SharedIdentity]:
        """Return which of these identities other packages have, by package id; at most `MOST_SHARED`."""
        owners = await self.store.owners(tenant_id, identities) if identities else ()
        shared = {SharedIdentity.of(owner.package_id, owner.identity) for owner in owners}
        return sorted(identity for identity in shared if identity.package_id != package_id)[:MOST_SHARED]

    async def shared_by_version(self, tenant_id: str, version: PackageVersion) -> Sequence[SharedIdentity]:
        """Return which identities of a version, and of the names of its package, other packages have."""
        await normalize_names(version)
        names = await self.store.names_of(tenant_id, version.package_id)
        return await self.shared(tenant_id, version.package_id, [*version.identities, *names])

    async def require_free(
        self, tenant_id: str, package_id: str, identities: Sequence[str], patterns: tuple[str, ...]
    ) -> None:
        """Raise IdentityTaken if a package that these patterns do not match has one of the identities.

        An identity that the own package has already may stay: an administrator allowed it, or it was first. One of a
        hidden package or pending version, such as the one to check, may not.
        """
        owners = await self.store.owners(tenant_id, identities) if identities else ()
        own = {owner.identity for owner in owners if owner.package_id == package_id and owner.is_active}
        taken = [
            SharedIdentity.of(owner.package_id, owner.identity)
            for owner in owners
            if owner.identity not in own and owner.package_id != package_id and not matches(patterns, owner.package_id)
        ]
        if taken:
            first = min(taken)
            raise IdentityTaken(package_id=first.package_id, field=first.kind, value=first.value)
