"""Upload sessions: a lease on one upload, the file that grows under it, and the single update that completes it.

A holder that lost its lease changes nothing. MongoDB rejects its updates, and the next holder writes to a copy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar
from uuid import uuid4

from common.concurrency.background import keep_lease
from common.errors import Problem, Unavailable
from common.http.zero_copy.socket_body import SocketBody
from common.mongo import MongoError
from common.telemetry import log, request_id, traces
from upload_service.model import InstallerMissing, ServerFilename, Status, TransferCancelled, TransferDamaged, Upload
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import Digest, PartFiles, PartWriter, Reserve, digest_of
from upload_service.uploads.claims import Removal
from upload_service.uploads.store import MongoUploadStore, clock

IDLE_SECONDS = 0.5  # that a chunk at another replica waits for at most; 0 keeps no lease

Key = tuple[str, str]  # tenant_id, file_id
Result = TypeVar("Result")
RENEWAL_SECONDS = 3.0  # A lease lasts 15, a kept one 6 since its last update, at most 1.5 before the chunk.


@dataclass(frozen=True)
class KeptLeases:
    """Leases that this process keeps between two chunks of a transfer, so that the next one needs no update to begin.

    - Only one request of this process has a lease at a time: `take` removes it from here.
    - A lease is released when no chunk comes for `IDLE_SECONDS`, at a cancellation here, and at the end of the process.
    - A lease that another process waits for is not kept after the next chunk. It is reserved for that process.
    - It protects nothing by itself. A process that was paused or is too slow keeps a lease that another one has taken
      over: the `fence` refuses its updates, and the new holder writes to a copy.
    """

    store: MongoUploadStore
    _kept: dict[Key, tuple[Upload, asyncio.TimerHandle]] = field(default_factory=dict)
    _releases: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, upload: Upload) -> None:
        """Keep the lease of a transfer until its next chunk comes."""
        key = upload.tenant_id, upload.file_id
        timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._begin_release, key)
        self._kept[key] = upload, timer

    def take(self, tenant_id: str, file_id: str) -> Upload | None:
        """The leased transfer if its lease is kept here; the caller has the lease from then on."""
        key = tenant_id, file_id
        kept = self._kept.get(key)
        is_due = kept is not None and kept[1].when() < asyncio.get_running_loop().time()
        return None if is_due else self._remove(key)  # After a pause of the process, the timer releases it.

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
        if key not in self._kept:
            return None
        upload, timer = self._kept.pop(key)
        timer.cancel()
        return upload

    async def _release(self, upload: Upload) -> None:
        try:
            await self.store.release(upload)
        except MongoError as error:  # The lease expires, and the next holder copies the file first.
            log.warning("lease_not_released", error=type(error).__name__, upload_id=upload.upload_id)


@dataclass(frozen=True)
class UploadSessions:
    """Opens sessions. `announce` is called for each complete upload; whole files are read in the threads `readers`."""

    removal: Removal
    folder: FolderStorage
    announce: Callable[[], None]
    readers: Executor

    @property
    def store(self) -> MongoUploadStore:
        return self.removal.store

    @property
    def parts(self) -> PartFiles:
        return self.removal.parts

    @cached_property
    def leases(self) -> KeptLeases:
        return KeptLeases(self.store)

    async def create(self, tenant_id: str, uploader: str) -> Upload:
        """A new leased upload of unknown length, under an X-File-ID of its own."""
        file_id = uuid4().hex
        await self.store.create(tenant_id, file_id, 0, uploader)
        upload = await self.store.acquire_lease(tenant_id, file_id)
        if upload is None:
            raise lease_lost_error()
        return upload

    @asynccontextmanager
    async def hold(self, upload: Upload) -> AsyncIterator["UploadSession"]:
        """A session for a leased upload: renews the lease, and releases it if the block fails.

        A cancelled block may leave a worker thread at the file. Then the lease expires instead, so that the next holder
        copies the file first.

        Raises:
            Unavailable: another request has the lease, and the files are gone.
        """
        async with keep_lease(partial(self.store.renew, upload), RENEWAL_SECONDS, upload_id=upload.upload_id):
            session = UploadSession(self, upload)
            try:
                yield session
            except Exception as error:
                is_ours = await self.store.release(session.upload)
                if isinstance(error, TransferDamaged) and not is_ours:
                    raise lease_lost_error() from None
                raise

    async def read(self, work: Callable[[], Result]) -> Result:
        """Do work that reads a whole file, in a thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work)


class UploadSession:
    """One leased upload. Every update raises Unavailable if another request has taken over the lease."""

    def __init__(self, sessions: UploadSessions, upload: Upload) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self.upload = upload

    async def read_progress(self) -> Upload:
        """The upload with the offset of its log. That of a kept lease is known."""
        if not self.upload.is_kept:
            self.upload = await asyncio.to_thread(self._sessions.parts.progress, self.upload)
        return self.upload

    @asynccontextmanager
    async def removed_on_failure(self) -> AsyncIterator[None]:
        """Remove the upload if the block fails, because no byte of it was acknowledged."""
        try:
            yield
        except BaseException:
            if await self._store.abandon(self.upload):
                await self._sessions.removal.finish(self.upload)
            raise

    async def copy_part(self) -> Digest:
        """Copy the acknowledged bytes to a file that earlier lease holders do not write to; returns their digest.

        Raises StorageFull and TransferDamaged.
        """
        parts, copy = self._sessions.parts, replace(self.upload, generation=self.upload.fence, needs_copy=False)
        digest = await self._sessions.read(partial(parts.copy, self.upload, copy.generation))
        _expect_lease(await self._store.set_generation(copy))
        await asyncio.to_thread(parts.remove_older, copy)
        self.upload = copy
        return digest

    async def write(
        self,
        blocks: AsyncIterator[bytes] | AsyncIterator[bytes | SocketBody],
        digest: Digest | None,
        reserve: Reserve | None = None,
        *,
        logs: bool = False,
    ) -> int:
        """Write the bytes after the acknowledged ones to the disk, and return their number; as `PartWriter.write`."""
        writer = PartWriter(partial(self._sessions.parts.open, self.upload, digest), logs=logs)
        return await writer.write(blocks, reserve)

    async def release(self) -> Upload:
        """Release the lease, changing nothing."""
        await self._store.release(self.upload)
        return self.upload

    async def advance(self, offset: int, *, keep: bool) -> Upload:
        """Acknowledge the logged bytes before `offset`, and keep the lease for the next chunk or release it."""
        upload = replace(self.upload, offset=offset)
        if clock() >= upload.certain_until:
            record = await self._store.advance(upload, keep=keep)
            if record is None:
                raise await self._refusal()
            upload = record
        if upload.is_kept:
            self._sessions.leases.keep(upload)
        return upload

    async def finish(self, size: int, suffix: str, digest: Digest | None) -> Upload:
        """Complete the upload in one update, which is also the announcement to publish; then give the file its name.

        Without a running digest the file is read once more.
        """
        path = self._sessions.parts.path(self.upload)
        complete = replace(
            self.upload,
            status=Status.COMPLETE,
            offset=size,
            total=size,
            server_filename=ServerFilename(f"{self.upload.upload_id}{suffix}"),
            size=size,
            sha256=digest.hexdigest() if digest else await self._sessions.read(partial(digest_of, path)),
            request_id=request_id(),
            traceparent=traces.traceparent,
        )
        if not await self._store.complete(complete):
            raise await self._refusal()
        try:
            await self._sessions.folder.finalize(complete)
        except InstallerMissing:  # It may have moved to its other storage, or may be deleted.
            record = await self._store.find(complete.tenant_id, complete.file_id)
            if record and (record.upload_id, record.storage) == (complete.upload_id, complete.storage):
                raise TransferDamaged from None
        self._sessions.announce()
        return complete

    async def _refusal(self) -> Problem:
        """The reason why a chunk was not acknowledged."""
        record = await self._store.find(self.upload.tenant_id, self.upload.file_id)
        return TransferCancelled() if record and record.is_cancelled else lease_lost_error()


def lease_lost_error() -> Unavailable:
    return Unavailable("Another request took this transfer over; send the chunk again.", retry_after=1)


def _expect_lease(is_ours: bool) -> None:
    if not is_ours:
        raise lease_lost_error()
