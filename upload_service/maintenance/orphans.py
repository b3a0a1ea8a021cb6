"""Removes files that no record knows: what a crash left between two steps, and what an older backup does not know.

The records are asked after a file was seen, and a record is there before its file: what they do not know now nobody
will ever ask for. Only what is old goes, and only from a storage that belongs to the database.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from common.concurrency.background import with_each
from common.telemetry import log
from common.tenants import is_tenant_id
from upload_service.maintenance.scrub import OwnershipCheck
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends
from upload_service.uploads.part_files import TRANSFERS

BATCH = 1000


class FileIndex(Protocol):
    """The records, asked for what was found in a storage."""

    async def known_names(self, tenant_id: str, server_filenames: Collection[str]) -> Set[str]:
        """Those of a tenant's files that there are records of."""

    async def find_uploads(self, tenant_id: str, upload_ids: Collection[str]) -> Sequence[Upload]:
        """Those of a tenant's uploads that there are records of."""


@dataclass(frozen=True)
class LeftoverPart:
    """The folder of a transfer's bytes: of one of its parts, or of a copy on its way to another home."""

    path: Path
    tenant_id: str
    upload_id: str
    part: str


class OrphanCollector:
    """Looks through the homes, and through the transfers in the folder. Several replicas may do so at once."""

    def __init__(
        self,
        store: FileIndex,
        homes: StorageBackends,
        folder: FolderStorage,
        path: Path,
        identity: OwnershipCheck,
        *,
        age: int,
    ) -> None:
        """`path` is where `folder` is; what is younger than `age` seconds, by the clock of its storage, stays."""
        self._store = store
        self._homes = homes
        self._folder = folder
        self._path = path
        self._identity = identity
        self._age = age

    async def collect(self) -> None:
        """Remove what nobody knows. Raises Unavailable where a home does not answer."""
        if await self._identity.is_ours(StorageKind.FOLDER):
            for tenant in await asyncio.to_thread(lambda: sorted(self._path.glob(f"*/{TRANSFERS}"))):
                await self._collect_transfers(tenant)
        for home in StorageKind:
            if home in self._homes and await self._identity.is_ours(home):
                await self._collect_installers(self._homes.get(home))

    async def _collect_installers(self, home: InstallerStorage) -> None:
        async for tenant_id, names in self._old_installers(home):
            known = await self._store.known_names(tenant_id, names)
            await with_each("orphans", set(names) - known, partial(self._remove, home, tenant_id))

    async def _remove(self, home: InstallerStorage, tenant_id: str, name: str) -> None:
        await home.remove(Upload(tenant_id, file_id="", upload_id=Path(name).stem, total=0, server_filename=name))
        log.warning("orphan_removed", tenant_id=tenant_id, server_filename=name)

    async def _old_installers(self, home: InstallerStorage) -> AsyncIterator[tuple[str, list[str]]]:
        """Names of one tenant at a time, at most a thousand; a home lists its tenants one after another."""
        tenant_id, names = "", list[str]()
        async for kept in home.list_files():
            if kept.age <= self._age:
                continue
            if names and (kept.tenant_id != tenant_id or len(names) == BATCH):
                yield tenant_id, names
                names = []
            tenant_id = kept.tenant_id
            names.append(kept.server_filename)
        if names:
            yield tenant_id, names

    async def _collect_transfers(self, folder: Path) -> None:
        """What lies among one tenant's transfers."""
        if old := await asyncio.to_thread(self._old_remains, folder):
            uploads = await self._store.find_uploads(old[0].tenant_id, [remains.upload_id for remains in old])
            records = {upload.upload_id: upload for upload in uploads}
            await with_each("orphans", old, partial(self._tidy, records))

    def _old_remains(self, folder: Path) -> list[LeftoverPart]:
        latest = time.time() - self._age
        tenant_id = folder.parent.name
        found = []
        for path in folder.iterdir() if is_tenant_id(tenant_id) else ():
            with suppress(FileNotFoundError, NotADirectoryError):  # It may go at any moment.
                if all(each.stat().st_mtime < latest for each in (path, *path.iterdir())):
                    upload_id, _, part = path.name.partition(".")
                    found.append(LeftoverPart(path, tenant_id, upload_id, part))
        return found

    async def _tidy(self, records: Mapping[str, Upload], remains: LeftoverPart) -> None:
        upload = records.get(remains.upload_id)
        # A take-over writes to the part of its fence before the record has it.
        if upload is not None and remains.part in {str(upload.generation), str(upload.fence)}:
            if upload.status in {Status.OPEN, Status.DELETING}:  # The latter goes with its record, by and by.
                return
            if upload.storage is StorageKind.FOLDER:
                with suppress(InstallerMissing):
                    await self._folder.finalize(upload)
        await asyncio.to_thread(shutil.rmtree, remains.path, ignore_errors=True)
        log.warning("transfer_remains_removed", tenant_id=remains.tenant_id, upload_id=remains.upload_id)
