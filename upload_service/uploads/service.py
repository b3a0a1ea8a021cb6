"""Transfers: the chunks under one X-File-ID, in order, each stored once (section 4.5)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from common.errors import BodyTooLarge, InvalidRequest, StorageExceeded, Unavailable
from common.tenants import Tenant
from upload_service.content_range import ContentRange, FileId
from upload_service.model import (
    InstallerMissing,
    Status,
    StorageFull,
    TransferCancelled,
    TransferComplete,
    TransferNotFound,
    UnexpectedChunk,
    Upload,
    add_expected_offset,
)
from upload_service.quota.service import reserve
from upload_service.storage.filesystem import StorageBackends, read_blocks
from upload_service.uploads.digests import Digests
from upload_service.uploads.part_files import Digest
from upload_service.uploads.part_writer import write_in_thread
from upload_service.uploads.resend import same_bytes
from upload_service.uploads.session import UploadSession, lease_lost_error

LEASE_TIMEOUT = 20.0  # seconds that a request waits for another of the same transfer
LEASE_PAUSE = 0.1  # seconds between two looks


class Chunk(Protocol):
    """The bytes that came with a range. `suffix` is the file's, known once the blocks are read."""

    suffix: str

    def blocks(self) -> AsyncIterator[bytes]: ...


class Transfers:
    """Brings installers in by chunks."""

    def __init__(self, intake: UploadSession, homes: StorageBackends) -> None:
        self._intake = intake
        self._homes = homes
        self._digests = Digests()

    async def find(self, tenant_id: str, file_id: FileId) -> Upload:
        """Where a transfer stands.

        Raises:
            TransferNotFound: no chunk came under this id, or the transfer was cancelled.
        """
        upload = await self._intake.store.find(tenant_id, file_id)
        if upload is None or upload.is_cancelled or upload.status is Status.DELETING:
            raise TransferNotFound
        return upload

    @asynccontextmanager
    async def report_expected_offset(self, tenant_id: str, file_id: FileId) -> AsyncIterator[None]:
        """Let whatever refuses a chunk within the block say with which byte the client can go on."""
        try:
            yield
        except (InvalidRequest, BodyTooLarge, StorageExceeded, StorageFull) as problem:
            upload = await self._intake.store.find(tenant_id, file_id)
            if not problem.members:
                add_expected_offset(problem, None if upload and upload.is_cancelled else upload)
            raise

    async def append(self, tenant: Tenant, file_id: FileId, span: ContentRange, chunk: Chunk) -> Upload:
        """Store a chunk, or see that it is stored already, and say where the transfer stands then.

        Raises:
            UnexpectedChunk: it is not the next one, has another total or other bytes; nothing is kept of it.
            InvalidRequest: its body is broken; nothing is kept of it.
            TransferCancelled: the transfer was cancelled, possibly before its first chunk came.
            StorageExceeded: the file would not fit in the tenant's quota.
            StorageFull: there is no room on the disk.
            Unavailable: another request works on the same transfer.
        """
        upload = await self._take(tenant.tenant_id, file_id, span)
        if upload.status is not Status.OPEN:
            return await self._compare(upload, span, chunk)
        async with self._intake.leased(upload):
            if span.end < upload.offset:
                known = await self._compare(upload, span, chunk)
                await self._intake.store.release(upload)
                return known
            _check(upload, span)
            if upload.offset:
                return await self._extend(upload, span, chunk)
            async with self._intake.undone(upload):
                await reserve(self._intake.quota, upload, span.total, tenant.storage_quota)
                return await self._extend(upload, span, chunk)

    async def cancel(self, tenant_id: str, file_id: FileId) -> None:
        """Remove a transfer and free its storage, or continue where an earlier call stopped.

        The id takes no chunk from then on, also where no chunk came yet: the first one may be on its way. A chunk that
        a request is receiving is waited for, because a removed file must not be written to.

        Raises:
            TransferNotFound: no chunk came under this id, or the transfer was cancelled before.
            TransferComplete: the last chunk came.
            Unavailable: a request is still receiving a chunk; no further chunk is taken.
        """
        loop = asyncio.get_running_loop()
        end, removed = loop.time() + LEASE_TIMEOUT, False
        while loop.time() < end:
            upload = await self._intake.store.find(tenant_id, file_id)
            if upload is None:
                await self._intake.store.add_cancelled(tenant_id, file_id)
                continue
            if upload.status in {Status.COMPLETE, Status.LINKED}:
                raise TransferComplete
            if upload.status is Status.CANCELLED:
                if removed:
                    return
                raise TransferNotFound
            if not upload.is_cancelled:
                await self._intake.store.cancel(upload)
            if await self._intake.removal.remove(upload):
                removed = True
            else:
                await asyncio.sleep(LEASE_PAUSE)
        raise Unavailable("Another request works on this transfer; try again.", retry_after=1)

    async def _take(self, tenant_id: str, file_id: FileId, span: ContentRange) -> Upload:
        """The transfer, with its lease if it is open; made where the chunk is the first of a new one."""
        # Not ended by cancelling: a lease that is taken meanwhile would be nobody's.
        loop = asyncio.get_running_loop()
        end = loop.time() + LEASE_TIMEOUT
        while loop.time() < end:
            if upload := await self._intake.store.acquire_lease(tenant_id, file_id):
                return upload
            upload = await self._intake.store.find(tenant_id, file_id)
            if upload is None:
                _check(Upload(tenant_id, file_id, "", span.total), span)
                await self._intake.store.create(tenant_id, file_id, span.total)
            elif upload.status in {Status.COMPLETE, Status.LINKED}:
                return upload
            elif upload.is_cancelled:
                raise TransferCancelled
            else:
                await asyncio.sleep(LEASE_PAUSE)
        raise Unavailable("Another request works on this transfer; send the chunk again.", retry_after=1)

    async def _compare(self, upload: Upload, span: ContentRange, chunk: Chunk) -> Upload:
        """A chunk that came before: its bytes must be the ones that are stored."""
        if span.total != upload.total:
            raise UnexpectedChunk(f"The total was {upload.total} bytes before, not {span.total}", upload)
        if upload.status is Status.OPEN:
            stored = read_blocks(self._intake.parts.path(upload), span.start, span.length)
        else:
            stored = self._stored(upload, span)
        if not await same_bytes(_exactly(upload, span, chunk), stored):
            raise UnexpectedChunk("These bytes came before, and were others", upload)
        return upload

    async def _stored(self, upload: Upload, span: ContentRange) -> AsyncGenerator[bytes, None]:
        begun = False
        try:
            async for block in self._homes.of(upload).read(upload, span.start, span.length):
                begun = True
                yield block
        except InstallerMissing:
            moved = await self.find(upload.tenant_id, FileId(upload.file_id))
            if begun or moved.storage is upload.storage:
                raise
            async for block in self._homes.of(moved).read(moved, span.start, span.length):
                yield block

    async def _extend(self, upload: Upload, span: ContentRange, chunk: Chunk) -> Upload:
        if upload.needs_copy:
            upload, digest = await self._intake.take_over(upload)
            self._digests.remember(upload.upload_id, upload.offset, digest)
        return await self._write(upload, span, chunk, self._digests.at(upload.upload_id, span.start))

    async def _write(self, upload: Upload, span: ContentRange, chunk: Chunk, digest: Digest | None) -> Upload:
        """Put the next chunk on the disk, then acknowledge it."""
        async with self._intake.written(upload, digest) as part:
            await write_in_thread(_exactly(upload, span, chunk), part.take)
        extended = replace(upload, offset=span.end + 1)
        if span.is_last:
            self._digests.forget(upload.upload_id)
            return await self._intake.finish(extended, chunk.suffix, digest)
        if not await self._intake.store.advance(extended):
            raise lease_lost_error()
        if digest is not None:
            self._digests.remember(upload.upload_id, extended.offset, digest)
        return extended


def _check(upload: Upload, span: ContentRange) -> None:
    """Let the chunk through that continues the transfer. Raises UnexpectedChunk."""
    if span.total != upload.total:
        raise UnexpectedChunk(f"The total was {upload.total} bytes before, not {span.total}", upload)
    if span.start != upload.offset:
        kind = "leaves a gap" if span.start > upload.offset else "overlaps what is stored"
        raise UnexpectedChunk(f"A chunk that begins with byte {span.start} {kind}", upload)


async def _exactly(upload: Upload, span: ContentRange, chunk: Chunk) -> AsyncIterator[bytes]:
    """The chunk's bytes, as many as the range has. Raises UnexpectedChunk for fewer or more."""
    count = 0
    async for block in chunk.blocks():
        count += len(block)
        if count > span.length:
            raise UnexpectedChunk(f"The body is longer than its range of {span.length} bytes", upload)
        yield block
    if count < span.length:
        raise UnexpectedChunk(f"The body has {count} bytes, its range {span.length}", upload)
