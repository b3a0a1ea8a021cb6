"""A tenant's storage: bytes used by linked files and reserved by transfers, together never more than the quota."""

from common.errors import StorageExceeded
from upload_service.model import Upload
from upload_service.quota.store import MongoQuotaStore


async def reserve(store: MongoQuotaStore, upload: Upload, size: int, quota: int | None) -> None:
    """Reserve `size` bytes for an upload. Raises StorageExceeded and TooManyUploads."""
    if not await store.reserve(upload, size, quota):
        raise StorageExceeded(f"A file of {size} bytes does not fit in the tenant's storage.")


class IncrementalReservation:
    """A reservation for a file of unknown length, made in steps. `max_size` is its limit in bytes, if it is known."""

    STEP = 64 << 20  # bytes

    def __init__(self, store: MongoQuotaStore, upload: Upload, quota: int | None, *, max_size: int | None) -> None:
        self._store = store
        self._upload = upload
        self._quota = quota
        self._max_size = max_size
        self._reserved = 0

    async def ensure(self, size: int) -> None:
        """Reserve at least `size` bytes, and a step more if the quota allows. Raises StorageExceeded."""
        if size <= self._reserved:
            return
        ahead = size + self.STEP if self._max_size is None else max(size, min(size + self.STEP, self._max_size))
        if await self._store.reserve(self._upload, ahead, self._quota):
            self._reserved = ahead
            return
        await reserve(self._store, self._upload, size, self._quota)
        self._reserved = size
