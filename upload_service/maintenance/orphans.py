"""Removes files without a record: leftovers of a crash, or files that are newer than a restored backup.

The records are read after a file was found, and a record always exists before its file. Only old files are removed,
and only from a storage that belongs to the database.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.concurrency.background import with_each
from common.telemetry import log
from common.tenants import is_tenant_id
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends
from upload_service.storage.integrity import StorageOwnership
from upload_service.storage.part_files import TRANSFERS
from upload_service.storage.store import MongoFileIndex

BATCH = 1000


@dataclass(frozen=True)
class OrphanCollector:
    """Searches the storages, and the transfers in the folder; several replicas may do so at once.

    `path` is where `folder` is. Files younger than `age` seconds, by the clock of their storage, stay.
    """

    index: MongoFileIndex
    backends: StorageBackends
    folder: FolderStorage
    path: Path
    ownership: StorageOwnership
    age: int

    async def collect(self) -> None:
        """Remove the files without a record. Raises Unavailable if a storage does not respond."""
        if await self.ownership.is_ours(StorageKind.FOLDER):
            for folder in await asyncio.to_thread(lambda: sorted(self.path.glob(f"*/{TRANSFERS}"))):
                await self._collect_parts(folder)
        for kind in self.backends.kinds:
            if await self.ownership.is_ours(kind):
                await self._collect_installers(self.backends.get(kind))

    async def _collect_installers(self, storage: InstallerStorage) -> None:
        async for tenant_id, names in self._old_installers(storage):
            known = await self.index.known_names(tenant_id, names)
            await with_each("orphans", set(names) - known, partial(self._remove_installer, storage, tenant_id))

    async def _remove_installer(self, storage: InstallerStorage, tenant_id: str, name: str) -> None:
        await storage.remove(Upload(tenant_id, file_id="", upload_id=Path(name).stem, total=0, server_filename=name))
        log.warning("orphan_removed", tenant_id=tenant_id, server_filename=name)

    async def _old_installers(self, storage: InstallerStorage) -> AsyncIterator[tuple[str, list[str]]]:
        """The names of old files, in batches of one tenant; a storage lists one tenant after another."""
        tenant_id, names = "", list[str]()
        async for file in storage.list_files():
            if file.age <= self.age:
                continue
            if names and (file.tenant_id != tenant_id or len(names) == BATCH):
                yield tenant_id, names
                names = []
            tenant_id = file.tenant_id
            names.append(file.server_filename)
        if names:
            yield tenant_id, names

    async def _collect_parts(self, folder: Path) -> None:
        tenant_id = folder.parent.name
        if is_tenant_id(tenant_id) and (parts := await asyncio.to_thread(self._old_parts, folder)):
            uploads = await self.index.find_uploads(tenant_id, [path.name.partition(".")[0] for path in parts])
            records = {upload.upload_id: upload for upload in uploads}
            await with_each("orphans", parts, partial(self._remove_part, records, tenant_id))

    def _old_parts(self, folder: Path) -> list[Path]:
        """The old folders of generations of transfers, and of copies on their way to another storage."""
        latest = time.time() - self.age
        parts = []
        for path in folder.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):  # It may be removed at any moment.
                if all(each.stat().st_mtime < latest for each in (path, *path.iterdir())):
                    parts.append(path)
        return parts

    async def _remove_part(self, records: Mapping[str, Upload], tenant_id: str, path: Path) -> None:
        upload_id, _, generation = path.name.partition(".")
        upload = records.get(upload_id)
        # A take-over writes to the generation of its fence before the record names it.
        if upload is not None and generation in {str(upload.generation), str(upload.fence)}:
            if upload.status in {Status.OPEN, Status.DELETING}:  # A removal takes the file with its record.
                return
            if upload.storage is StorageKind.FOLDER:
                with suppress(InstallerMissing):
                    await self.folder.finalize(upload)
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        log.warning("transfer_remains_removed", tenant_id=tenant_id, upload_id=upload_id)
