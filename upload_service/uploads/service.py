"""Transfers: installers that arrive in chunks under one X-File-ID, or in one request."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from common.auth.internal_tokens import Caller
from common.caching import FifoCache
from common.errors import BodyTooLarge, InvalidRequest, StorageExceeded, Unavailable
from common.http.zero_copy.socket_body import SocketBody
from upload_service.model import (
    ContentRange,
    FileId,
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
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.filesystem import prepend, read_blocks
from upload_service.storage.part_files import Digest
from upload_service.uploads.session import UploadSession, UploadSessions

MAX_AHEAD = 64 << 20  # bytes
B = TypeVar("B", bytes, bytes | SocketBody)
LEASE_TIMEOUT = 20.0  # seconds that a request waits for another one of the same transfer
LEASE_PAUSE = 0.1  # seconds between two tries
MAX_DIGESTS = 4096  # of transfers


@dataclass
class Reservation:
    """The part of the quota for a file, made in steps. `max_size` is the file's limit in bytes, if it is known."""

    store: MongoQuotaStore
    upload: Upload
    quota: int | None
    max_size: int | None
    reserved: int = 0

    async def ensure(self, size: int) -> None:
        """Reserve at least `size` bytes, and a step more if the quota allows. Raises StorageExceeded and others."""
        if size <= self.reserved:
            return
        ahead = size + MAX_AHEAD if self.max_size is None else max(size, min(size + MAX_AHEAD, self.max_size))
        for amount in (ahead, size):
            if await self.store.reserve(self.upload, amount, self.quota):
                self.reserved = amount
                return
        raise StorageExceeded(f"A file of {size} bytes does not fit in the tenant's storage.")


class Chunk(Protocol):
    """The body of a request. `suffix` is the ending of the file's name, known after all blocks were read."""

    suffix: str

    def blocks(self) -> AsyncIterator[bytes]: ...

    def large_blocks(self, length: int | None) -> AsyncIterator[bytes | SocketBody]:
        """As `blocks`; a body of `length` bytes, or of unknown length, may be a block that is still in the socket."""


def expect_total(upload: Upload, span: ContentRange) -> None:
    """Raise UnexpectedChunk if the chunk belongs to a file of another length."""
    if span.total != upload.total:
        raise UnexpectedChunk(f"The total was {upload.total} bytes before, not {span.total}", upload)


def expect_next(upload: Upload, span: ContentRange) -> None:
    """Raise UnexpectedChunk unless the chunk continues the transfer."""
    expect_total(upload, span)
    if span.start != upload.offset:
        kind = "leaves a gap" if span.start > upload.offset else "overlaps what is stored"
        raise UnexpectedChunk(f"A chunk that begins with byte {span.start} {kind}", upload)


async def expect_length(upload: Upload, span: ContentRange, blocks: AsyncIterator[B]) -> AsyncIterator[B]:
    """The blocks of a chunk. Raises UnexpectedChunk if they are longer or shorter than its range."""
    count = 0
    async for block in blocks:
        if count + len(block) > span.length:
            raise UnexpectedChunk(f"The body is longer than its range of {span.length} bytes", upload)
        yield block
        count += len(block)  # The length of a block in the socket is known from now on.
    if count != span.length:
        raise UnexpectedChunk(f"The body has {count} bytes, its range {span.length}", upload)


async def same_bytes(blocks: AsyncIterator[bytes], stored: AsyncGenerator[bytes, None]) -> bool:
    """Whether both are the same bytes; `blocks` is read to its end in any case."""
    same, known = True, bytearray()
    async with aclosing(stored):
        async for block in blocks:
            while same and len(known) < len(block):
                more = await anext(stored, b"")
                known += more
                same = bool(more)
            same = same and known.startswith(block)
            del known[: len(block)]
    return same


class Transfers:
    """Stores installers that arrive in chunks, or in one request."""

    def __init__(self, sessions: UploadSessions) -> None:
        self.sessions = sessions
        self._removal = sessions.removal
        self._store, self._quota, self._parts = self._removal.store, self._removal.quota, self._removal.parts
        # By upload id: the running digest of so many bytes. The last chunk then needs no second reading of the file.
        self._digests: FifoCache[str, tuple[int, Digest]] = FifoCache(MAX_DIGESTS)

    async def find(self, caller: Caller, file_id: FileId) -> Upload:
        """The state of a transfer.

        Raises TransferNotFound, also for a cancelled one, or PermissionMissing if the caller may not use it.
        """
        upload = await self._find(caller.tenant_id, file_id)
        if upload is None or upload.is_gone:
            raise TransferNotFound
        caller.require_uploader(upload.uploader)
        return upload

    async def _find(self, tenant_id: str, file_id: FileId) -> Upload | None:
        """The state of a transfer, with the chunks that were acknowledged since the last update of its record."""
        upload = await self._store.find(tenant_id, file_id)
        while upload and upload.status is Status.OPEN:
            current = await asyncio.to_thread(self._parts.progress, upload)
            if current.offset > upload.offset:
                return current
            # A later lease, or the end of the transfer, may have replaced the file since the record was read.
            record = await self._store.find(tenant_id, file_id)
            if record == upload:
                return current
            upload = record
        return upload

    @asynccontextmanager
    async def report_expected_offset(self, caller: Caller, file_id: FileId) -> AsyncIterator[None]:
        """Add the byte that is expected next to an error that refuses a chunk within the block.

        Raises PermissionMissing if the caller may not use the transfer.
        """
        if caller.is_restricted and (upload := await self._store.find(caller.tenant_id, file_id)):
            caller.require_uploader(upload.uploader)
        try:
            yield
        except (InvalidRequest, BodyTooLarge, StorageExceeded, StorageFull) as problem:
            upload = await self._find(caller.tenant_id, file_id)
            if not problem.members:
                add_expected_offset(problem, None if upload and upload.is_cancelled else upload)
            raise

    async def append(self, caller: Caller, file_id: FileId, span: ContentRange, chunk: Chunk) -> Upload:
        """Store a chunk, or compare it with the stored bytes, and return the state after it. A failure stores nothing.

        Raises:
            UnexpectedChunk: the chunk is not the next one, or its total or its bytes differ from those sent before.
            InvalidRequest: the body is malformed.
            TransferCancelled: the transfer was cancelled, possibly before its first chunk arrived.
            PermissionMissing: the caller may not use the transfer.
            StorageExceeded: the file does not fit in the tenant's quota.
            StorageFull: the disk is full.
            Unavailable: another request has the lease of the transfer.
        """
        upload = await self._acquire_lease(caller, file_id, span)
        if upload.status is not Status.OPEN:
            caller.require_uploader(upload.uploader)
            await self._expect_same(upload, span, chunk)
            return upload
        async with self.sessions.hold(upload) as session:
            caller.require_uploader(upload.uploader)
            upload = await session.read_progress()
            if span.end < upload.offset:
                await self._expect_same(upload, span, chunk)
                return await session.release()
            expect_next(upload, span)
            if upload.offset:
                return await self._store_chunk(session, span, chunk)
            async with session.removed_on_failure():
                await Reservation(self._quota, upload, caller.tenant.storage_quota, span.total).ensure(span.total)
                return await self._store_chunk(session, span, chunk)

    async def store_whole(self, caller: Caller, file: Chunk, *, min_size: int, max_size: int | None) -> Upload | None:
        """Store the installer of a one-call form; None if it has no installer. A failure stores nothing.

        The size is at least `min_size` bytes, and at most `max_size`, as known before the form is read.

        Raises:
            InvalidRequest: the form is malformed or contradicts itself.
            StorageExceeded: the file does not fit in the tenant's quota.
            StorageFull: the disk is full.
        """
        blocks = file.large_blocks(None)
        first = await anext(blocks, None)
        if first is None:
            return None
        digest = hashlib.sha256()
        upload = await self.sessions.create(caller.tenant_id, caller.username)
        async with self.sessions.hold(upload) as session, session.removed_on_failure():
            reservation = Reservation(self._quota, upload, caller.tenant.storage_quota, max_size)
            await reservation.ensure(min_size)
            size = await session.write(prepend(first, blocks), digest, reservation.ensure)
            await self._quota.shrink(upload, size)
            return await session.finish(size, file.suffix, digest)

    async def cancel(self, caller: Caller, file_id: FileId) -> None:
        """Remove a transfer and free its storage, or continue where an earlier call stopped.

        The id takes no chunk from then on, even if its first chunk is still on its way. A chunk that a request is
        receiving is waited for, because a removed file must not be written to.

        Raises:
            TransferNotFound: no chunk was received under this id, or the transfer was cancelled before.
            TransferComplete: the last chunk was received.
            PermissionMissing: the caller may not use the transfer.
            Unavailable: a request is still receiving a chunk; no further chunk is taken.
        """
        loop, tenant_id = asyncio.get_running_loop(), caller.tenant_id
        end, is_removed = loop.time() + LEASE_TIMEOUT, False
        while loop.time() < end:
            upload = await self._store.find(tenant_id, file_id)
            if upload is None:
                await self._store.add_cancelled(tenant_id, file_id, caller.username)
                continue
            caller.require_uploader(upload.uploader)
            if upload.status in {Status.COMPLETE, Status.LINKED}:
                raise TransferComplete
            if upload.status is Status.CANCELLED:
                if is_removed:
                    return
                raise TransferNotFound
            if not upload.is_cancelled:
                await self._store.cancel(upload)
            await self.sessions.leases.give_back(tenant_id, file_id)
            if await self._removal.remove(upload):
                is_removed = True
            else:
                await asyncio.sleep(LEASE_PAUSE)
        raise Unavailable("Another request works on this transfer; try again.", retry_after=1)

    async def _acquire_lease(self, caller: Caller, file_id: FileId, span: ContentRange) -> Upload:
        """The transfer: leased if it is open, created if the chunk is the first one; mostly the lease is kept here."""
        # No asyncio.timeout: a cancelled update could leave a lease without a holder.
        loop, tenant_id = asyncio.get_running_loop(), caller.tenant_id
        end = loop.time() + LEASE_TIMEOUT
        while loop.time() < end:
            if upload := self.sessions.leases.take(tenant_id, file_id):
                return upload
            if upload := await self._store.acquire_lease(tenant_id, file_id):
                return upload
            upload = await self._store.find(tenant_id, file_id)
            if upload is None:
                expect_next(Upload(tenant_id, file_id, "", span.total), span)
                await self._store.create(tenant_id, file_id, span.total, caller.username)
            elif upload.status in {Status.COMPLETE, Status.LINKED}:
                return upload
            elif upload.is_cancelled:
                raise TransferCancelled
            else:
                await self._store.want(upload)
                await asyncio.sleep(LEASE_PAUSE)
        raise Unavailable("Another request works on this transfer; send the chunk again.", retry_after=1)

    async def _store_chunk(self, session: UploadSession, span: ContentRange, chunk: Chunk) -> Upload:
        """Write the next chunk to the disk, then acknowledge it in one update."""
        upload_id = session.upload.upload_id
        if session.upload.needs_copy:
            self._digests.put(upload_id, (span.start, await session.copy_part()))
        digest = self._digest(session.upload)
        # Without a digest another process saw a chunk: the chunks alternate, and a kept lease would delay each.
        keep = digest is not None and not span.is_last
        blocks = expect_length(session.upload, span, chunk.large_blocks(span.length))
        await session.write(blocks, digest, logs=not span.is_last)
        if span.is_last:
            return await session.finish(span.total, chunk.suffix, digest)
        upload = await session.advance(span.end + 1, keep=keep)
        if digest is not None:
            self._digests.put(upload_id, (upload.offset, digest))
        return upload

    def _digest(self, upload: Upload) -> Digest | None:
        """A copy of the digest of the stored bytes; None if this process has not seen all of them in order."""
        if not upload.offset:
            return hashlib.sha256()
        offset, digest = self._digests.get(upload.upload_id) or (0, None)
        return digest.copy() if digest and offset == upload.offset else None

    async def _expect_same(self, upload: Upload, span: ContentRange, chunk: Chunk) -> None:
        """Read the whole chunk. Raises UnexpectedChunk if its total or its bytes differ from the stored ones."""
        expect_total(upload, span)
        if upload.status is Status.OPEN:
            stored = read_blocks(self._parts.path(upload), span.start, span.length)
        else:
            stored = self._read_installer(upload, span)
        if not await same_bytes(expect_length(upload, span, chunk.blocks()), stored):
            raise UnexpectedChunk("These bytes came before, and were others", upload)

    async def _read_installer(self, upload: Upload, span: ContentRange) -> AsyncGenerator[bytes, None]:
        """The stored bytes, also of a file that moves to its other storage before the first block is read."""
        has_begun = False
        try:
            async for block in self._removal.backends.of(upload).read(upload, span.start, span.length):
                has_begun = True
                yield block
        except InstallerMissing:
            moved = await self._store.find(upload.tenant_id, upload.file_id)
            if moved is None or moved.is_gone:
                raise TransferNotFound from None
            if has_begun or moved.storage is upload.storage:
                raise
            async for block in self._removal.backends.of(moved).read(moved, span.start, span.length):
                yield block
