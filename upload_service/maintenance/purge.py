"""What nobody wants any more: transfers that were abandoned, files that no version claimed, deletions half done."""

from typing import Protocol

from common.concurrency.background import with_each
from common.telemetry import log
from upload_service.model import Status, Upload
from upload_service.storage.filesystem import StorageBackends
from upload_service.uploads.removal import Removal

BATCH = 1000
HALF_DONE = 60  # seconds after which a deletion is taken up again


class LeftoverStore(Protocol):
    """The records as the collector sees them."""

    async def find_stale(self, status: Status, age: int, limit: int) -> list[Upload]: ...

    async def delete_cancelled(self, age: int) -> None:
        """Delete the records of transfers of all tenants that were cancelled more than `age` seconds ago."""


class SettledStore(Protocol):
    """The quota's list of what was settled."""

    async def delete_settled(self) -> None: ...


class TenantStore(Protocol):
    """A store that can forget a tenant."""

    async def forget_tenant(self, tenant_id: str) -> None: ...


class Collector:
    """Removes leftovers. It must win `deleting` first, so that it and a claim cannot both have a file."""

    def __init__(
        self, store: LeftoverStore, quota: SettledStore, removal: Removal, *, transfer_idle: int, unclaimed_age: int
    ) -> None:
        """`transfer_idle` and `unclaimed_age` are seconds."""
        self._store = store
        self._quota = quota
        self._removal = removal
        self._transfer_idle = transfer_idle
        self._ages = {Status.OPEN: transfer_idle, Status.COMPLETE: unclaimed_age, Status.DELETING: HALF_DONE}

    async def collect(self) -> None:
        for status, age in self._ages.items():
            await with_each("collector", await self._store.find_stale(status, age, BATCH), self._remove)
        await self._store.delete_cancelled(self._transfer_idle)
        await self._quota.delete_settled()

    async def _remove(self, upload: Upload) -> None:
        if await self._removal.remove(upload):
            log.info("leftover_removed", status=upload.status, tenant_id=upload.tenant_id, upload_id=upload.upload_id)


async def forget_tenant(tenant_id: str, homes: StorageBackends, *stores: TenantStore) -> None:
    """Remove everything of a tenant: its records, its quota, its files."""
    for store in stores:
        await store.forget_tenant(tenant_id)
    for home in homes:
        await home.remove_tenant(tenant_id)
