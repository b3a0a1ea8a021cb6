"""Claims: an installer belongs to the package version that claimed it, and is removed with that version."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.auth.internal_tokens import Caller
from common.errors import StorageExceeded
from upload_service.model import InstallerDamaged, InstallerNotFound, Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.file_names import parse_server_filename
from upload_service.uploads.removal import Removal
from upload_service.uploads.store import MongoUploadStore


@dataclass(frozen=True)
class Claims:
    """Links files to versions, and removes them."""

    store: MongoUploadStore
    quota: MongoQuotaStore
    removal: Removal

    async def claim(self, caller: Caller, server_filename: str, version_uid: str) -> Upload:
        """Link a file to a version and charge the quota; the same claim again changes nothing.

        Raises:
            InstallerNotFound: no complete file has this name, or it is linked to another version.
            PermissionMissing: the caller may not use the upload.
            InstallerDamaged: the file is unclaimed, and is not what was uploaded.
            StorageExceeded: the tenant's storage would exceed its quota.
        """
        upload = await self._find(caller, server_filename)
        if upload is None or upload.status is Status.DELETING:
            raise InstallerNotFound
        if upload.damage and upload.status is Status.COMPLETE:
            raise InstallerDamaged
        # The link comes first: the file stays reserved until it is charged, so it is counted once at every moment.
        linked = await self._link(upload, version_uid)
        if not await self.quota.charge(linked, caller.tenant.storage_quota):
            await self.store.unlink(linked)
            raise StorageExceeded("The tenant's storage is full.")
        # A concurrent claim of the version may have failed to pay and undone the link; after this one it cannot.
        return await self._link(upload, version_uid)

    async def unclaimed(self, caller: Caller, server_filenames: Sequence[str]) -> list[str]:
        """The files among these that the caller can claim for a version."""
        own = {"uploader": caller.username} if caller.is_restricted else {}
        return await self.store.unclaimed(caller.tenant_id, server_filenames, **own)

    async def discard(self, caller: Caller, server_filename: str) -> None:
        """Remove a complete file that belongs to no version; any other file stays. Raises PermissionMissing."""
        upload = await self._find(caller, server_filename)
        if upload is not None and upload.status is Status.COMPLETE:
            await self.removal.remove_or_postpone([upload])

    async def release(self, tenant_id: str, version_uids: Sequence[str]) -> None:
        """Remove the files of these versions and release their storage, later if a storage does not respond."""
        await self.removal.remove_or_postpone(await self.store.find_linked(tenant_id, version_uids))

    async def check_uploader(self, caller: Caller, server_filename: str) -> None:
        """Raise PermissionMissing if the caller may not use an upload."""
        if caller.is_restricted:
            await self._find(caller, server_filename)

    async def _find(self, caller: Caller, server_filename: str) -> Upload | None:
        name = parse_server_filename(server_filename)
        upload = await self.store.find_installer(caller.tenant_id, name) if name else None
        if upload is not None:
            caller.require_uploader(upload.uploader)
        return upload

    async def _link(self, upload: Upload, version_uid: str) -> Upload:
        linked = await self.store.link(upload, version_uid)
        if linked is None:
            raise InstallerNotFound("This installer belongs to another version.")
        return linked
