"""A tenant's storage: what linked files use, and what transfers have reserved; together never more than the quota."""

from typing import Protocol

from common.errors import StorageExceeded, TooManyRequests
from upload_service.model import Upload


class TooManyUploads(TooManyRequests):
    """The tenant has as many uploads under way as its ledger has room for."""

    code = "too_many_uploads"

    def __init__(self, most: int) -> None:
        detail = f"{most} uploads are open or belong to no version; finish, publish or leave some."
        super().__init__(detail, retry_after=60, most=most)


class QuotaStore(Protocol):
    """One document for each tenant. Each method is one conditional update, and twice is the same as once."""

    async def reserve(self, upload: Upload, size: int, quota: int | None) -> bool:
        """Let the upload's reservation be at least `size` bytes; False where that would pass the quota.

        Raises:
            TooManyUploads: the tenant has too many under way.
        """

    async def shrink(self, upload: Upload, size: int) -> None:
        """Let the upload's reservation be `size` bytes, fewer than now."""

    async def charge(self, upload: Upload, quota: int | None) -> bool:
        """Turn the upload's reservation into use; False where used and reserved together pass the quota."""

    async def give_back(self, upload: Upload) -> None:
        """Drop the upload's reservation, or its use."""

    async def usage(self, tenant_id: str) -> tuple[int, int]:
        """The bytes used and reserved."""


async def reserve(store: QuotaStore, upload: Upload, size: int, quota: int | None) -> None:
    """Keep `size` bytes for an upload.

    Raises:
        StorageExceeded: the tenant has no room for them.
    """
    if not await store.reserve(upload, size, quota):
        raise StorageExceeded(f"A file of {size} bytes does not fit in the tenant's storage.")


class IncrementalReservation:
    """A reservation for a file of unknown length, taken in steps."""

    STEP = 64 << 20  # bytes

    def __init__(self, store: QuotaStore, upload: Upload, quota: int | None, *, most: int | None) -> None:
        """`most` is what the file cannot be longer than, in bytes, where that is known."""
        self._store = store
        self._upload = upload
        self._quota = quota
        self._most = most
        self._reserved = 0

    async def cover(self, size: int) -> None:
        """Reserve at least `size` bytes: a step ahead where there is room for one.

        Raises:
            StorageExceeded: there is no room for `size` bytes.
        """
        if size <= self._reserved:
            return
        ahead = size + self.STEP if self._most is None else max(size, min(size + self.STEP, self._most))
        if await self._store.reserve(self._upload, ahead, self._quota):
            self._reserved = ahead
            return
        await reserve(self._store, self._upload, size, self._quota)
        self._reserved = size
