"""The versions of a package: created around a file that upload_service keeps, and removed with it.

A version is `pending` until its file is claimed, then active, and `deleting` until its file is gone; all but this
module see active ones only. What a crash leaves halfway is settled by `sweeper`. A version whose installer stays
elsewhere takes the same steps with no file to claim: only so does it miss no deletion of its package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model.manifest.rules import winget_refusals
from catalog_service.model.ordering import newest_first
from catalog_service.model.packages import InstallerFile, PackageNotFound, VersionExists, VersionNotFound
from catalog_service.model.versions import PackageVersion
from common.auth.callers import Caller
from common.errors import Problem
from common.tenants import Tenant, VersionKey


@dataclass(frozen=True)
class PendingVersion:
    """A version whose file is not claimed yet, and the package it is to belong to."""

    tenant_id: str
    package_uid: str
    version: PackageVersion


class PackageFinder(Protocol):
    """Tells which packages there are; those whose deletion has begun are not."""

    async def package_uid(self, tenant_id: str, package_id: str) -> str | None: ...


class VersionStore(Protocol):
    """Where versions are kept."""

    async def reserve(self, pending: PendingVersion, version_key: str) -> None:
        """Raises VersionExists where the package has a version with this key or this installer key."""

    async def has_version(self, tenant_id: str, package_id: str, version: str) -> bool:
        """Whether there is one with this version string, pending ones included."""

    async def find_equal_pending(self, pending: PendingVersion) -> PendingVersion | None:
        """A pending version that is equal in all but its uid."""

    async def activate(self, tenant_id: str, version: PackageVersion, file: InstallerFile) -> bool:
        """Let a pending version be seen; False where it is no longer pending."""

    async def discard(self, tenant_id: str, uid: str) -> None:
        """Remove a version that is still pending."""

    async def find(self, tenant_id: str, uid: str) -> PackageVersion | None: ...

    async def of_package(self, tenant_id: str, package_id: str) -> Sequence[PackageVersion] | None:
        """None where there is no such package, or its deletion has begun."""

    async def hide(self, tenant_id: str, package_id: str, uids: Sequence[str]) -> None:
        """Begin to delete. Raises VersionNotFound, and hides none, where the package lacks one of them."""

    async def hide_all(self, tenant_id: str, package_uid: str) -> Sequence[str]:
        """Begin to delete all versions of a package, pending ones included; the uids of all that are hidden."""

    async def remove(self, tenant_id: str, uids: Sequence[str]) -> None:
        """End the deletion of hidden versions; those hidden while pending stay for the sweeper."""


class Installers(Protocol):
    """The files, which upload_service keeps."""

    async def claim(self, caller: Caller, server_filename: str, version_uid: str) -> InstallerFile:
        """Raises Problem: 404 where there is no such file to have, 407 where the quota is full."""

    async def release(self, caller: Caller, version_uids: Sequence[str]) -> None: ...


class LinkedUploads(Protocol):
    async def link(self, tenant_id: str, server_filename: str) -> None:
        """Note that a finished upload belongs to a version."""


class Versions:
    """Creates, lists and deletes versions (sections 4.4 and 4.5)."""

    def __init__(
        self, store: VersionStore, packages: PackageFinder, installers: Installers, uploads: LinkedUploads
    ) -> None:
        self._store = store
        self._packages = packages
        self._installers = installers
        self._uploads = uploads

    async def of_package(self, caller: Caller, package_id: str) -> Sequence[PackageVersion]:
        """The newest first. Raises PackageNotFound."""
        found = await self._store.of_package(caller.tenant_id, package_id)
        if found is None:
            raise PackageNotFound(package_id)
        return newest_first(found)

    async def find(self, caller: Caller, uid: str) -> PackageVersion:
        """Raises VersionNotFound."""
        version = await self._store.find(caller.tenant_id, uid)
        if version is None or await self._packages.package_uid(caller.tenant_id, version.package_id) is None:
            raise VersionNotFound(uid)
        return version

    async def with_refusals(self, caller: Caller, uid: str) -> tuple[PackageVersion, Sequence[str]]:
        """A version, and why winget clients are not offered it: not at all where they are. Raises VersionNotFound."""
        version = await self.find(caller, uid)
        others = await self._store.of_package(caller.tenant_id, version.package_id) or ()
        side_by_side = [version, *(other for other in others if other.channel == version.channel and other.uid != uid)]
        return version, winget_refusals(side_by_side).get(uid, ())

    async def add(self, caller: Caller, version: PackageVersion) -> str:
        """Create a version around an uploaded file, and give its uid.

        The same request again, after one that ended halfway, goes on where that ended.

        Raises:
            PackageNotFound: there is no such package.
            VersionExists: the tenant's version key is taken within the package.
            Problem: upload_service refuses the file (404, 407) or does not answer.
        """
        package_uid = await self._packages.package_uid(caller.tenant_id, version.package_id)
        if package_uid is None:
            raise PackageNotFound(version.package_id)
        pending = await self._reserve(caller.tenant, PendingVersion(caller.tenant_id, package_uid, version))
        await self.finish(caller, pending)
        return pending.version.uid

    async def finish(self, caller: Caller, pending: PendingVersion) -> None:
        """Claim the file of a pending version and let the version be seen; undone where that is refused.

        Raises as `add` does; VersionExists also where another request, or the sweeper, has just finished it.
        """
        tenant_id, version = pending.tenant_id, pending.version
        try:
            # Looked for again: a deletion that did not see our row must have begun before this.
            if await self._packages.package_uid(tenant_id, version.package_id) != pending.package_uid:
                raise PackageNotFound(version.package_id)
            file = await self._file_of(caller, version)
        except Problem as problem:
            if problem.status < 500:  # Otherwise the file may be ours all the same; trying again will tell.
                await self._store.discard(tenant_id, version.uid)
            raise
        if version.server_filename:
            await self._uploads.link(tenant_id, version.server_filename)
        if await self._store.activate(tenant_id, version, file):
            return
        if await self._store.find(tenant_id, version.uid) is not None:
            raise VersionExists(version.version)
        await self._installers.release(caller, [version.uid])
        raise PackageNotFound(version.package_id)

    async def delete(self, caller: Caller, package_id: str, uids: Sequence[str]) -> None:
        """Remove these versions and their files, all of them or none.

        Raises:
            PackageNotFound: there is no such package.
            VersionNotFound: the package does not have one of them.
            Unavailable: the files could not be removed yet; the versions are hidden already.
        """
        if await self._packages.package_uid(caller.tenant_id, package_id) is None:
            raise PackageNotFound(package_id)
        await self._store.hide(caller.tenant_id, package_id, uids)
        await self._remove(caller, uids)

    async def remove_all(self, caller: Caller, package_uid: str) -> None:
        """Remove all versions of a package and their files. Raises Unavailable."""
        await self._remove(caller, await self._store.hide_all(caller.tenant_id, package_uid))

    async def _file_of(self, caller: Caller, version: PackageVersion) -> InstallerFile:
        """The version's file, which is its own from now on; one that stays elsewhere is as its publisher says."""
        if version.installer_url:
            return InstallerFile(size=0, sha256=version.sha256)
        return await self._installers.claim(caller, version.server_filename, version.uid)

    async def _remove(self, caller: Caller, uids: Sequence[str]) -> None:
        if uids:
            await self._installers.release(caller, uids)
            await self._store.remove(caller.tenant_id, uids)

    async def _reserve(self, tenant: Tenant, pending: PendingVersion) -> PendingVersion:
        version = pending.version
        by_version = tenant.version_key is VersionKey.VERSION
        try:
            # Versions made while the tenant's key was `installer` do not stand under their version string.
            if by_version and await self._store.has_version(tenant.tenant_id, version.package_id, version.version):
                raise VersionExists(version.version)
            await self._store.reserve(pending, version.version if by_version else version.installer_key)
        except VersionExists:
            halfway = await self._store.find_equal_pending(pending)
            if halfway is None:
                raise
            return halfway
        return pending
