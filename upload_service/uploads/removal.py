"""The removal of an upload: its record is marked first and deleted last."""

import asyncio
from dataclasses import dataclass

from upload_service.model import Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.uploads.part_files import PartFiles
from upload_service.uploads.store import MongoUploadStore


@dataclass(frozen=True)
class Removal:
    """Removes uploads, their files and their part of the quota."""

    store: MongoUploadStore
    quota: MongoQuotaStore
    parts: PartFiles
    backends: StorageBackends

    async def remove(self, upload: Upload) -> bool:
        """Remove an upload, or continue where an earlier call stopped; False if it has changed since it was read.

        Raises:
            Unavailable: the storage of the file does not respond or is not in the settings. The upload stays
                `deleting` until its file is removed.
        """
        is_deleting = upload.status is Status.DELETING or await self.store.mark_deleting(upload)
        if is_deleting:
            await self.finish(upload)
        return is_deleting

    async def finish(self, upload: Upload) -> None:
        """Remove what is left of an upload that is `deleting`; an interrupted call can be repeated."""
        self.backends.of(upload)  # Raises Unavailable.
        await asyncio.to_thread(self.parts.remove, upload)
        for storage in self.backends:
            await storage.remove(upload)
        await self.quota.release(upload)
        await self.store.delete_record(upload)
