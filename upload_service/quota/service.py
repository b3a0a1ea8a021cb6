"""A tenant's storage: bytes used by linked files and reserved by transfers, together never more than the quota."""

from typing import Protocol

from common.errors import StorageExceeded, TooManyRequests
from upload_service.model import Upload


class TooManyUploads(TooManyRequests):
    """The ledger of the tenant has no room for another upload."""

    code = "too_many_uploads"

    def __init__(self, limit: int) -> None:
        detail = f"Limit of {limit} unassigned uploads reached; publish or delete some."
        super().__init__(detail, retry_after=60, limit=limit)


class QuotaStore(Protocol):
    """One document for each tenant. Each method is one conditional update; repeating it changes nothing."""

    async def reserve(self, upload: Upload, size: int, quota: int | None) -> bool:
        """Reserve at least `size` bytes for the upload; False if that would exceed the quota. Raises TooManyUploads."""

    async def shrink(self, upload: Upload, size: int) -> None:
        """Reduce the upload's reservation to `size` bytes."""

    async def charge(self, upload: Upload, quota: int | None) -> bool:
        """Turn the upload's reservation into use; False if used and reserved together exceed the quota."""

    async def release(self, upload: Upload) -> None:
        """Drop the upload's reservation, or its use."""

    async def delete_settled(self) -> None:
        """Delete, for all tenants, the old ids of settled uploads of which no record is left."""


async def reserve(store: QuotaStore, upload: Upload, size: int, quota: int | None) -> None:
    """Reserve `size` bytes for an upload. Raises StorageExceeded and TooManyUploads."""
    if not await store.reserve(upload, size, quota):
        raise StorageExceeded(f"A file of {size} bytes does not fit in the tenant's storage.")


class IncrementalReservation:
    """A reservation for a file of unknown length, made in steps. `max_size` is its limit in bytes, if it is known."""

    STEP = 64 << 20  # bytes

    def __init__(self, store: QuotaStore, upload: Upload, quota: int | None, *, max_size: int | None) -> None:
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
