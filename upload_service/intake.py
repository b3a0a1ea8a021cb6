"""What every way of bringing a file in has in common: a lease, a file that grows, and an end of one write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from common.errors import Unavailable
from common.mongo import MongoError
from common.telemetry import log
from upload_service.installers import Digest, Installers, PartFile, digest_of
from upload_service.model import Status, Upload
from upload_service.quota import QuotaStore
from upload_service.ranges import ServerFilename

RENEWAL = 15.0  # seconds; a lease lasts 60


class TransferStore(Protocol):
    """The records. A method that takes an `Upload` changes it only where its lease is still the one last taken."""

    async def find(self, tenant_id: str, file_id: str) -> Upload | None: ...

    async def open(self, tenant_id: str, file_id: str, total: int) -> None:
        """Make the record of a new transfer; nothing where there is one."""

    async def take(self, tenant_id: str, file_id: str) -> Upload | None:
        """Take the lease of an open transfer; None where it is taken, or there is no such transfer."""

    async def renew(self, upload: Upload) -> bool: ...

    async def release(self, upload: Upload) -> None: ...

    async def advance(self, upload: Upload, offset: int) -> bool:
        """Acknowledge the bytes before `offset`, and give the lease back."""

    async def complete(self, upload: Upload, server_filename: str, size: int, sha256: str) -> bool:
        """Say that the whole file is there, not announced yet, and give the lease back."""

    async def forget(self, upload: Upload) -> None: ...


@dataclass(frozen=True)
class Intake:
    """Where files come in. `announce` is called when one is complete; `readers` read whole files again."""

    store: TransferStore
    quota: QuotaStore
    installers: Installers
    announce: Callable[[], None]
    readers: Executor

    @asynccontextmanager
    async def leased(self, upload: Upload) -> AsyncIterator[None]:
        """Renew the lease within the block; give it back at once where the block fails."""
        renewal = asyncio.create_task(self._renew(upload))
        try:
            yield
        except BaseException:
            await self.store.release(upload)
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
            if await self.store.renew(upload):
                await asyncio.to_thread(self.installers.remove, upload)
                await self.quota.give_back(upload)
                await self.store.forget(upload)
            raise

    @asynccontextmanager
    async def written(self, upload: Upload, digest: Digest | None) -> AsyncIterator[PartFile]:
        """The transfer's file to write to within the block: all on the disk after it, or cut again where it fails."""
        part = await asyncio.to_thread(self.installers.open_part, upload, digest)
        try:
            yield part
            await asyncio.to_thread(part.sync)
        except BaseException:
            # Whoever took the lease over has written since; those bytes are not ours to cut.
            if await self.store.renew(upload):
                await asyncio.to_thread(part.cut)
            raise
        finally:
            await asyncio.to_thread(part.close)

    async def finish(self, upload: Upload, suffix: str, digest: Digest | None) -> Upload:
        """Name a whole file, and say so in one write, which is also what the announcement is made from.

        `upload.offset` is the file's size; without a running digest the file is read once more.
        """
        size = upload.offset
        sha256 = digest.hexdigest() if digest else await self._read_again(upload)
        name = ServerFilename(f"{upload.upload_id}{suffix}")
        await asyncio.to_thread(self.installers.finish, upload, name)
        if not await self.store.complete(upload, name, size, sha256):
            raise lease_lost()
        self.announce()
        return replace(upload, status=Status.COMPLETE, total=size, server_filename=name, size=size, sha256=sha256)

    async def _read_again(self, upload: Upload) -> str:
        path = self.installers.path(upload)
        return await asyncio.get_running_loop().run_in_executor(self.readers, digest_of, path)

    async def _renew(self, upload: Upload) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            try:
                await self.store.renew(upload)
            except MongoError as error:
                log.warning("lease_not_renewed", upload_id=upload.upload_id, error=type(error).__name__)


def lease_lost() -> Unavailable:
    return Unavailable("Another request took this transfer over; send the chunk again.", retry_after=1)
