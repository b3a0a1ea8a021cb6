"""The removal of uploads: one upload, abandoned ones of all tenants, or all uploads of a tenant.

A record is marked first and deleted last.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.concurrency.background import with_each
from common.errors import Unavailable
from common.telemetry import log
from upload_service.model import Status, Upload
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

    async def remove_or_postpone(self, uploads: Sequence[Upload]) -> None:
        """Mark uploads as `deleting` and remove them; the collector removes those whose storage does not respond."""
        deleting = [upload for upload in uploads if await self._begin(upload)]
        try:
            for upload in deleting:
                await self.finish(upload)
        except Unavailable as error:
            log.warning("removal_postponed", error=str(error), **upload.log_fields)

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
