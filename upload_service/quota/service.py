"""A tenant's storage: bytes used by linked files and reserved by transfers, together never more than the quota."""

from dataclasses import dataclass

from common.errors import StorageExceeded
from upload_service.model import Upload
from upload_service.quota.store import MongoQuotaStore

MAX_AHEAD = 64 << 20  # bytes


async def reserve(store: MongoQuotaStore, upload: Upload, size: int, quota: int | None) -> None:
    """Reserve `size` bytes for an upload. Raises StorageExceeded and TooManyUploads."""
    if not await store.reserve(upload, size, quota):
        raise StorageExceeded(f"A file of {size} bytes does not fit in the tenant's storage.")


@dataclass
class IncrementalReservation:
    """A reservation for a file of unknown length, made in steps. `max_size` is its limit in bytes, if it is known."""

    store: MongoQuotaStore
    upload: Upload
    quota: int | None
    max_size: int | None
    reserved: int = 0

    async def ensure(self, size: int) -> None:
        """Reserve at least `size` bytes, and a step more if the quota allows. Raises StorageExceeded."""
        if size <= self.reserved:
            return
        ahead = size + MAX_AHEAD if self.max_size is None else max(size, min(size + MAX_AHEAD, self.max_size))
        if await self.store.reserve(self.upload, ahead, self.quota):
            self.reserved = ahead
            return
        await reserve(self.store, self.upload, size, self.quota)
        self.reserved = size
