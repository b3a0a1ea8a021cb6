"""Leases that this process keeps between two chunks of a transfer, so that the next chunk needs no update to begin.

- Only one request of this process has a lease at a time: `take` removes it from here.
- A lease is released when no chunk comes for `IDLE_SECONDS`, at a cancellation here, and at the end of the process.
- A lease that another process waits for is not kept after the next chunk. It is reserved for that process for a moment.
- It protects nothing by itself. A process that was paused or is too slow keeps a lease that another one has taken over:
  the `fence` refuses its updates, and the new holder writes to a copy, as with any other lost lease.
"""

import asyncio
from dataclasses import dataclass, field

from common.mongo import MongoError
from common.telemetry import log
from upload_service.model import Upload
from upload_service.uploads.store import MongoUploadStore

IDLE_SECONDS = 0.5  # that a chunk at another replica waits for at most; 0 keeps no lease

Key = tuple[str, str]  # tenant_id, file_id


@dataclass(frozen=True)
class _Kept:
    upload: Upload
    until: float  # by the clock of the event loop
    timer: asyncio.TimerHandle


@dataclass(frozen=True)
class KeptLeases:
    """Keeps leases by X-File-ID."""

    store: MongoUploadStore
    _kept: dict[Key, _Kept] = field(default_factory=dict)
    _releases: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, upload: Upload) -> None:
        """Keep the lease of a transfer until its next chunk comes."""
        loop, key = asyncio.get_running_loop(), (upload.tenant_id, upload.file_id)
        timer = loop.call_later(IDLE_SECONDS, self._begin_release, key)
        self._kept[key] = _Kept(upload, loop.time() + IDLE_SECONDS, timer)

    def take(self, tenant_id: str, file_id: str) -> Upload | None:
        """The leased transfer if its lease is kept here; the caller has the lease from then on."""
        key = tenant_id, file_id
        kept = self._kept.get(key)
        if kept is None or kept.until < asyncio.get_running_loop().time():  # It was paused; the timer releases it.
            return None
        return self._remove(key)

    async def give_back(self, tenant_id: str, file_id: str) -> None:
        """Release the lease of a transfer if it is kept here."""
        if upload := self._remove((tenant_id, file_id)):
            await self._release(upload)

    async def give_all_back(self) -> None:
        """Release all leases, because the process ends."""
        for key in list(self._kept):
            self._begin_release(key)
        await asyncio.gather(*self._releases)

    def _begin_release(self, key: Key) -> None:
        if upload := self._remove(key):
            task = asyncio.create_task(self._release(upload))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    def _remove(self, key: Key) -> Upload | None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        kept.timer.cancel()
        return kept.upload

    async def _release(self, upload: Upload) -> None:
        try:
            await self.store.release(upload)
        except MongoError as error:  # The lease expires, and the next holder copies the file first.
            log.warning("lease_not_released", error=type(error).__name__, upload_id=upload.upload_id)
