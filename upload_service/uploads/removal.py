"""How an upload goes: the record says so first, and goes last."""

import asyncio
from typing import Protocol

from upload_service.model import Status, Upload
from upload_service.quota.service import QuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.uploads.part_files import PartFiles


class RemovalStore(Protocol):
    """The records as a removal sees them."""

    async def mark_deleting(self, upload: Upload) -> bool:
        """Let an upload be `deleting`, where it has not changed since it was read and nobody works on it."""

    async def delete_record(self, upload: Upload) -> None:
        """Delete the record of an upload that is `deleting`; while it is not announced only its X-File-ID is freed.

        The record of a cancelled transfer becomes `cancelled` and stays.
        """


class Removal:
    """Removes uploads, their files and their part of the quota."""

    def __init__(self, store: RemovalStore, quota: QuotaStore, parts: PartFiles, homes: StorageBackends) -> None:
        self._store = store
        self._quota = quota
        self._parts = parts
        self._homes = homes

    async def remove(self, upload: Upload) -> bool:
        """Remove an upload, or go on where an earlier try stopped; False where it changed since it was read, and stays.

        Raises:
            Unavailable: the storage of the file does not answer, or the settings name none such; the upload is as good
                as gone, and its record stays until its file is.
        """
        doomed = upload.status is Status.DELETING or await self._store.mark_deleting(upload)
        if doomed:
            await self.finish(upload)
        return doomed

    async def finish(self, upload: Upload) -> None:
        """Remove what an upload that is `deleting` still has; whatever stops this leaves what is needed to go on."""
        self._homes.of(upload)
        await asyncio.to_thread(self._parts.remove, upload)
        for home in self._homes:
            await home.remove(upload)
        await self._quota.release(upload)
        await self._store.delete_record(upload)
