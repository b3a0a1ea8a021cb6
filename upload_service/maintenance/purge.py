"""Removes abandoned transfers, unclaimed files and interrupted deletions."""

from dataclasses import dataclass

from common.concurrency.background import with_each
from common.telemetry import log
from upload_service.model import Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.uploads.removal import Removal
from upload_service.uploads.store import MongoUploadStore

BATCH = 1000
INTERRUPTED = 60  # seconds after which a deletion is continued


@dataclass(frozen=True)
class Collector:
    """Removes stale uploads; ages are seconds. It must win `deleting` first, so that no claim gets the same file."""

    store: MongoUploadStore
    quota: MongoQuotaStore
    removal: Removal
    transfer_idle: int
    unclaimed_age: int

    async def collect(self) -> None:
        ages = {Status.OPEN: self.transfer_idle, Status.COMPLETE: self.unclaimed_age, Status.DELETING: INTERRUPTED}
        for status, age in ages.items():
            await with_each("collector", await self.store.find_stale(status, age, BATCH), self._remove)
        await self.store.delete_cancelled(self.transfer_idle)
        await self.quota.delete_settled()

    async def _remove(self, upload: Upload) -> None:
        if await self.removal.remove(upload):
            log.info("leftover_removed", status=upload.status, tenant_id=upload.tenant_id, upload_id=upload.upload_id)


async def forget_tenant(tenant_id: str, backends: StorageBackends, *stores: MongoUploadStore | MongoQuotaStore) -> None:
    """Remove everything of a tenant: its records, its quota, its files."""
    for store in stores:
        await store.forget_tenant(tenant_id)
    for storage in backends:
        await storage.remove_tenant(tenant_id)
