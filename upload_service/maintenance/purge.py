"""Removes abandoned transfers, unclaimed files and interrupted deletions."""

from dataclasses import dataclass
from typing import Protocol

from common.concurrency.background import with_each
from common.telemetry import log
from upload_service.model import Status, Upload
from upload_service.quota.service import QuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.uploads.removal import Removal

BATCH = 1000
INTERRUPTED = 60  # seconds after which a deletion is continued


class StaleStore(Protocol):
    """The upload records, as the collector needs them. Ages are seconds without a change."""

    async def find_stale(self, status: Status, age: int, limit: int) -> list[Upload]: ...

    async def delete_cancelled(self, age: int) -> None:
        """Delete the records of cancelled transfers of all tenants."""


class TenantStore(Protocol):
    """A store that can delete all of a tenant."""

    async def forget_tenant(self, tenant_id: str) -> None: ...


@dataclass(frozen=True)
class Collector:
    """Removes stale uploads; ages are seconds. It must win `deleting` first, so that no claim gets the same file."""

    store: StaleStore
    quota: QuotaStore
    removal: Removal
    transfer_idle: int
    unclaimed_age: int

    async def collect(self) -> None:
        ages = {
            Status.OPEN: self.transfer_idle,
            Status.COMPLETE: self.unclaimed_age,
            Status.DELETING: INTERRUPTED,
        }
        for status, age in ages.items():
            await with_each("collector", await self.store.find_stale(status, age, BATCH), self._remove)
        await self.store.delete_cancelled(self.transfer_idle)
        await self.quota.delete_settled()

    async def _remove(self, upload: Upload) -> None:
        if await self.removal.remove(upload):
            log.info("leftover_removed", status=upload.status, tenant_id=upload.tenant_id, upload_id=upload.upload_id)


async def forget_tenant(tenant_id: str, backends: StorageBackends, *stores: TenantStore) -> None:
    """Remove everything of a tenant: its records, its quota, its files."""
    for store in stores:
        await store.forget_tenant(tenant_id)
    for storage in backends:
        await storage.remove_tenant(tenant_id)
