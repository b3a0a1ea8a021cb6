"""What every way of bringing a file in has in common: a lease, a file that grows, and an end of one write.

A holder that lost its lease harms nothing: the record refuses what it says, and whoever took the lease over writes to
a copy of the file.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from common.errors import Unavailable
from common.mongo import MongoError
from common.telemetry import log, request_id
from common.telemetry.tracing import traces
from upload_service.content_range import ServerFilename
from upload_service.model import InstallerMissing, Status, TransferDamaged, Upload
from upload_service.quota.service import QuotaStore
from upload_service.storage.filesystem import FolderStorage
from upload_service.uploads.part_files import Digest, PartFile, PartFiles, digest_of
from upload_service.uploads.removal import Removal

Given = ParamSpec("Given")
Result = TypeVar("Result")

RENEWAL = 4.0  # seconds; a lease lasts 15


class TransferStore(Protocol):
    """The records. A method that takes an `Upload` changes it only where its lease is still the one last taken."""

    async def find(self, tenant_id: str, file_id: str) -> Upload | None: ...

    async def create(self, tenant_id: str, file_id: str, total: int) -> None:
        """Make the record of a new transfer; nothing where there is one."""

    async def add_cancelled(self, tenant_id: str, file_id: str) -> None:
        """Make the record of a cancelled transfer; nothing where there is a record."""

    async def cancel(self, upload: Upload) -> None:
        """Give no further lease of an open transfer; the request that has the lease keeps it."""

    async def acquire_lease(self, tenant_id: str, file_id: str) -> Upload | None:
        """Take the lease of an open transfer; None where it is taken, or there is no such transfer."""

    async def renew(self, upload: Upload) -> bool:
        """Lengthen the lease; False where it was given back, or is another's by now."""

    async def set_generation(self, upload: Upload) -> bool:
        """Say that the acknowledged bytes are in the file `part`, where no earlier holder writes."""

    async def release(self, upload: Upload) -> bool:
        """Give the lease back; False where it is another's by now."""

    async def advance(self, upload: Upload) -> bool:
        """Acknowledge the bytes before `offset`, and give the lease back."""

    async def complete(self, upload: Upload) -> bool:
        """Say that the whole file is there, not announced yet, and give the lease back."""

    async def abandon(self, upload: Upload) -> bool:
        """Let the transfer be `deleting`."""


@dataclass(frozen=True)
class UploadSession:
    """Where files come in. `announce` is called when one is complete; `readers` read whole files again."""

    store: TransferStore
    quota: QuotaStore
    parts: PartFiles
    installers: FolderStorage
    removal: Removal
    announce: Callable[[], None]
    readers: Executor

    @asynccontextmanager
    async def leased(self, upload: Upload) -> AsyncIterator[None]:
        """Renew the lease within the block; give it back at once where the block fails.

        A block that is cancelled may leave a worker thread at the file: then the lease is left to run out, so that
        whoever comes next copies the file first.

        Raises:
            Unavailable: the files are gone with the lease, which was taken over.
        """
        renewal = asyncio.create_task(self._renew(upload))
        try:
            yield
        except Exception as error:
            ours = await self.store.release(upload)
            if isinstance(error, TransferDamaged) and not ours:
                raise lease_lost_error() from None
            raise
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    @asynccontextmanager
    async def undone(self, upload: Upload) -> AsyncIterator[None]:
        """Leave no trace of a transfer of which nothing was acknowledged, where the block fails."""
        try:
            yield
        except BaseException:
            if await self.store.abandon(upload):
                await self.removal.finish(upload)
            raise

    @asynccontextmanager
    async def written(self, upload: Upload, digest: Digest | None) -> AsyncIterator["PartWriter"]:
        """The transfer's file, to be written within the block; cut again where that fails."""
        writing = PartWriter(partial(self.parts.open, upload, digest))
        try:
            yield writing
        except BaseException:
            await asyncio.to_thread(writing.undo)
            raise

    async def finish(self, upload: Upload, suffix: str, digest: Digest | None) -> Upload:
        """Say in one write that a file is whole, which is also what the announcement is made from; then name it.

        `upload.offset` is the file's size; without a running digest the file is read once more.
        """
        complete = replace(
            upload,
            status=Status.COMPLETE,
            total=upload.offset,
            server_filename=ServerFilename(f"{upload.upload_id}{suffix}"),
            size=upload.offset,
            sha256=digest.hexdigest() if digest else await self._read(digest_of, self.parts.path(upload)),
            request_id=request_id(),
            traceparent=traces.traceparent,
        )
        if not await self.store.complete(complete):
            raise lease_lost_error()
        await self._settle(complete)
        self.announce()
        return complete

    async def take_over(self, upload: Upload) -> tuple[Upload, Digest]:
        """Give a transfer a file of its own, out of the reach of whoever had the lease before.

        Raises:
            StorageFull: there is no room for a copy.
            TransferDamaged: bytes that were acknowledged are not there.
            Unavailable: the lease was taken over.
        """
        copy = replace(upload, generation=upload.fence, needs_copy=False)
        digest = await self._read(self.parts.copy, upload, copy.generation)
        if not await self.store.set_generation(copy):
            raise lease_lost_error()
        await asyncio.to_thread(self.parts.remove_older, copy)
        return copy, digest

    async def _settle(self, upload: Upload) -> None:
        try:
            await self.installers.finalize(upload)
        except InstallerMissing:
            found = await self.store.find(upload.tenant_id, upload.file_id)
            if found is not None and (found.upload_id, found.storage) == (upload.upload_id, upload.storage):
                raise TransferDamaged from None

    async def _read(self, work: Callable[Given, Result], *given: Given.args, **words: Given.kwargs) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.readers, partial(work, *given, **words))

    async def _renew(self, upload: Upload) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            try:
                await self.store.renew(upload)
            except MongoError as error:
                log.warning("lease_not_renewed", upload_id=upload.upload_id, error=type(error).__name__)


class PartWriter:
    """What is done to a file in worker threads while a request brings its bytes: in as few visits as can be."""

    def __init__(self, opening: Callable[[], PartFile]) -> None:
        self._opening = opening
        self._file: PartFile | None = None

    def take(self, blocks: Sequence[bytes], last: bool) -> None:
        """Write the next bytes; after the last ones all are on the disk. Raises what `PartFiles` and `PartFile` do."""
        if self._file is None:
            self._file = self._opening()
        self._file.write(blocks)
        if last:
            self._file.sync()
            self._file.close()
            self._file = None

    def undo(self) -> None:
        """Give back the room of what was taken, where the last bytes did not come."""
        if self._file is not None:
            with closing(self._file) as file:
                file.truncate()


def lease_lost_error() -> Unavailable:
    return Unavailable("Another request took this transfer over; send the chunk again.", retry_after=1)
