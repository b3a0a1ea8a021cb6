"""Upload sessions: a lease on one upload, the file that grows under it, and the single update that completes it.

A holder that lost its lease changes nothing. MongoDB rejects its updates, and the next holder writes to a copy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar
from uuid import uuid4

from common.concurrency.lease import keep_lease
from common.errors import Problem, Unavailable
from common.http.socket_body import SocketBody
from common.telemetry import request_id, traces
from upload_service.model import InstallerMissing, Status, TransferCancelled, TransferDamaged, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.file_names import ServerFilename
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import Digest, PartFiles, digest_of
from upload_service.storage.part_writer import PartWriter, Reserve
from upload_service.storage.progress_file import certain_until, clock
from upload_service.uploads.leases.kept import KeptLeases
from upload_service.uploads.removal import Removal
from upload_service.uploads.store import MongoUploadStore

Result = TypeVar("Result")

RENEWAL_SECONDS = 3.0  # A lease lasts 15, a kept one 6 since its last update, at most 1.5 before the chunk.


@dataclass(frozen=True)
class UploadSessions:
    """Opens sessions. `announce` is called for each complete upload; whole files are read in the threads `readers`."""

    store: MongoUploadStore
    quota: MongoQuotaStore
    parts: PartFiles
    folder: FolderStorage
    removal: Removal
    announce: Callable[[], None]
    readers: Executor

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
        self._is_recorded = False

    async def read_progress(self) -> Upload:
        """The upload with the offset that an earlier holder acknowledged, after it was taken over from that."""
        if self.upload.needs_copy:
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
        record: bool = False,
    ) -> int:
        """Write the bytes after the acknowledged ones to the disk, and return their number; as `PartWriter.write`.

        `record` writes the new offset to the progress file, if it can acknowledge the bytes.
        """
        writer = PartWriter(partial(self._sessions.parts.open, self.upload, digest, record=record))
        size = await writer.write(blocks, reserve)
        self._is_recorded = writer.is_recorded
        return size

    async def release(self) -> Upload:
        """Release the lease, changing nothing."""
        await self._store.release(self.upload)
        return self.upload

    async def advance(self, offset: int, *, keep: bool) -> Upload:
        """Acknowledge the bytes before `offset`, and keep the lease for the next chunk or release it."""
        extended = replace(self.upload, offset=offset)
        sent = clock()
        if self._is_recorded and sent < extended.certain_until:
            self._sessions.leases.keep(extended)
            return extended
        record = await self._store.advance(extended, keep=keep)
        if record is None:
            raise await self._refusal()
        if record.kept_fence:
            self._sessions.leases.keep(replace(extended, certain_until=certain_until(sent)))
        return extended

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
