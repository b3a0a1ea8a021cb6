"""The end of an upload: a package version claims it, or it is removed.

A claimed installer is removed with its version. The record of a removed upload is marked first and deleted last.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import StorageExceeded, Unavailable
from common.telemetry import log
from upload_service.model import (
    InstallerDamaged,
    InstallerInUse,
    InstallerNotFound,
    Status,
    Upload,
    parse_server_filename,
)
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.storage.part_files import PartFiles
from upload_service.uploads.store import MongoUploadStore

BATCH = 1000
INTERRUPTED = 60  # seconds after which a deletion is continued


class TenantStore(Protocol):
    """A store that can delete the documents of a tenant."""

    async def forget_tenant(self, tenant_id: str) -> None: ...


@dataclass(frozen=True)
class Removal:
    """Removes uploads, their files and their part of the quota."""

    store: MongoUploadStore
    quota: MongoQuotaStore
    parts: PartFiles
    backends: StorageBackends

    async def remove(self, upload: Upload) -> bool:
        """Remove an upload, or continue where an earlier call stopped; False if it has changed since it was read.

        Raises:
            Unavailable: the storage of the file does not respond or is not in the settings. The upload stays
                `deleting` until its file is removed.
        """
        is_deleting = await self._begin(upload)
        if is_deleting:
            await self.finish(upload)
        return is_deleting

    async def remove_or_postpone(self, uploads: Sequence[Upload]) -> bool:
        """Mark uploads as `deleting` and remove them; the collector removes those whose storage does not respond.

        False if one of them has changed since it was read.
        """
        deleting = [upload for upload in uploads if await self._begin(upload)]
        try:
            for upload in deleting:
                await self.finish(upload)
        except Unavailable as error:
            log.warning("removal_postponed", error=str(error), **upload.log_fields)
        return len(deleting) == len(uploads)

    async def finish(self, upload: Upload) -> None:
        """Remove what is left of an upload that is `deleting`; an interrupted call can be repeated."""
        self.backends.of(upload)  # Raises Unavailable.
        await asyncio.to_thread(self.parts.remove, upload)
        for storage in self.backends:
            await storage.remove(upload)
        await self.quota.release(upload)
        await self.store.delete_record(upload)

    async def _begin(self, upload: Upload) -> bool:
        """Whether the upload is `deleting` now; False if it has changed since it was read."""
        return upload.status is Status.DELETING or await self.store.mark_deleting(upload)


@dataclass(frozen=True)
class Collector:
    """Removes stale uploads; ages are seconds. It must win `deleting` first, so that no claim gets the same file."""

    removal: Removal
    transfer_idle: int
    unclaimed_age: int

    async def collect(self) -> None:
        ages = {Status.OPEN: self.transfer_idle, Status.COMPLETE: self.unclaimed_age, Status.DELETING: INTERRUPTED}
        for status, age in ages.items():
            await with_each("collector", await self.removal.store.find_stale(status, age, BATCH), self._remove)
        await self.removal.store.delete_cancelled(self.transfer_idle)
        await self.removal.quota.delete_settled()

    async def _remove(self, upload: Upload) -> None:
        if await self.removal.remove(upload):
            log.info("leftover_removed", status=upload.status, tenant_id=upload.tenant_id, upload_id=upload.upload_id)


async def forget_tenant(tenant_id: str, backends: StorageBackends, *stores: TenantStore) -> None:
    """Remove everything of a tenant: its records, its quota, its download counts, its files."""
    for store in stores:
        await store.forget_tenant(tenant_id)
    for storage in backends:
        await storage.remove_tenant(tenant_id)


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

    async def delete(self, caller: Caller, server_filename: str) -> Upload:
        """Remove a complete file that belongs to no version; the same call again continues where one stopped.

        Raises:
            InstallerNotFound: the tenant has no such file.
            InstallerInUse: a version has the file.
            PermissionMissing: the caller may not use the upload.
        """
        while upload := await self._find(caller, server_filename):
            if upload.status is Status.LINKED:
                raise InstallerInUse
            if await self.removal.remove_or_postpone([upload]):
                return upload
        raise InstallerNotFound

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
