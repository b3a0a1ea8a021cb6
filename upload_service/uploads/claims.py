"""Installers and the package versions they belong to: claimed by one version, released when that one goes."""

from collections.abc import Sequence
from typing import Protocol

from common.errors import StorageExceeded
from common.tenants import Tenant
from upload_service.content_range import parse_server_filename
from upload_service.model import InstallerDamaged, InstallerNotFound, Status, Upload
from upload_service.quota.service import QuotaStore
from upload_service.uploads.removal import Removal


class ClaimStore(Protocol):
    """The records as claims see them."""

    async def find_installer(self, tenant_id: str, server_filename: str) -> Upload | None: ...

    async def unclaimed(self, tenant_id: str, server_filenames: Sequence[str]) -> list[str]: ...

    async def find_linked(self, tenant_id: str, version_uids: Sequence[str]) -> list[Upload]: ...

    async def link(self, upload: Upload, version_uid: str) -> Upload | None:
        """The file, linked to this version now or before, for this claim to undo; None where it cannot be."""

    async def unlink(self, upload: Upload) -> bool:
        """Undo a link, unless another claim has taken it."""


class Claims:
    """Links files to versions, and removes them."""

    def __init__(self, store: ClaimStore, quota: QuotaStore, removal: Removal) -> None:
        self._store = store
        self._quota = quota
        self._removal = removal

    async def find(self, tenant_id: str, server_filename: str) -> Upload:
        """A file that is complete.

        Raises:
            InstallerNotFound: there is none of this name in this tenant.
        """
        name = parse_server_filename(server_filename)
        upload = await self._store.find_installer(tenant_id, name) if name else None
        if upload is None or upload.status is Status.DELETING:
            raise InstallerNotFound("There is no installer of this name.")
        return upload

    async def unclaimed(self, tenant_id: str, server_filenames: Sequence[str]) -> list[str]:
        """Those of these files that a version can claim."""
        return await self._store.unclaimed(tenant_id, server_filenames)

    async def claim(self, tenant: Tenant, server_filename: str, version_uid: str) -> Upload:
        """Link a file to a version and charge the quota; again by the same version changes nothing.

        Raises:
            InstallerNotFound: there is no such file, or it is linked to another version.
            InstallerDamaged: it is free, and not what was uploaded.
            StorageExceeded: what the tenant stores is more than its quota.
        """
        upload = await self.find(tenant.tenant_id, server_filename)
        if upload.damage and upload.status is Status.COMPLETE:
            raise InstallerDamaged("The file of this installer is damaged; upload it again.")
        # The link comes first: until it is paid the file stays reserved, so it is counted once at every moment.
        linked = await self._link(upload, version_uid)
        if not await self._quota.charge(linked, tenant.storage_quota):
            await self._store.unlink(linked)
            raise StorageExceeded("The tenant's storage is full.")
        # Another claim of the version may have failed to pay and undo the link; once this is said again it cannot.
        return await self._link(upload, version_uid)

    async def discard(self, tenant_id: str, server_filename: str) -> None:
        """Remove a complete file that no version has; anything else stays."""
        name = parse_server_filename(server_filename)
        upload = await self._store.find_installer(tenant_id, name) if name else None
        if upload is not None and upload.status is Status.COMPLETE:
            await self._removal.remove(upload)

    async def release(self, tenant_id: str, version_uids: Sequence[str]) -> None:
        """Remove the files of these versions and give their room back."""
        for upload in await self._store.find_linked(tenant_id, version_uids):
            await self._removal.remove(upload)

    async def _link(self, upload: Upload, version_uid: str) -> Upload:
        linked = await self._store.link(upload, version_uid)
        if linked is None:
            raise InstallerNotFound("This installer belongs to another version.")
        return linked
