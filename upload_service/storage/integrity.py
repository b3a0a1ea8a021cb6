"""Whether a storage belongs to the database, and whether a file in it has the digest of its upload.

Both have the same random id. A service may be started with the installers of one installation and the database of
another, or with an unmounted disk. Then it must not remove files that have no record, nor mark records without a file.

A failed read has two causes. The storage does not respond: then nothing is known about the file. Or the storage cannot
read this one file, such as an object in an archive tier or on a bad sector. The storage's id file tells them apart.
"""

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from common.errors import Unavailable
from common.mongo import MongoError
from common.telemetry import log
from upload_service.model import Damage, InstallerMissing, StorageKind, Upload
from upload_service.storage.filesystem import InstallerStorage, StorageBackends
from upload_service.storage.part_files import Digest
from upload_service.storage.store import MongoFileIndex

FOLDER, NAME = ".storage", "id"  # no tenant and no installer has such a name
LENGTH = 32  # bytes of an id
SAMPLE = 1000  # files of a storage without an id that are looked up in the records

_ID_FILE = Upload(tenant_id=FOLDER, file_id=NAME, upload_id=NAME, total=0, server_filename=NAME)
ATTEMPTS = 2  # to read a file, while its storage responds
BATCH = 8  # blocks that one visit to a thread hashes
AfterBlock = Callable[[int], Awaitable[None]]


class StorageIsNotOurs(Exception):
    """The storage has another id than the database, or none though it should."""


@dataclass(frozen=True)
class StorageOwnership:
    """Checks whether a storage belongs to the database, and binds one that belongs to none yet.

    The id is stored like an installer, in every kind of storage. `folder` is the one that all replicas share.
    """

    index: MongoFileIndex
    backends: StorageBackends
    folder: Path

    async def is_ours(self, kind: StorageKind) -> bool:
        """Whether a storage belongs to the database. Raises Unavailable."""
        in_storage, in_database = await self._ids(kind)
        if in_storage is None or in_storage != in_database:
            log.error("storage_is_not_ours", home=kind, id_in_the_storage=in_storage, id_in_the_database=in_database)
            return False
        return True

    async def check(self, kind: StorageKind) -> None:
        """Raise StorageIsNotOurs, or Unavailable; other readiness checks cover the disk and the database."""
        with suppress(MongoError, OSError):
            in_storage, in_database = await self._ids(kind)
            if in_storage is None or in_storage != in_database:
                raise StorageIsNotOurs(kind)

    async def _ids(self, kind: StorageKind) -> tuple[str | None, str | None]:
        in_storage, in_database = await self._read(kind), await self.index.storage_id()
        if in_storage is None and await self._may_be_ours(kind):
            in_database = await self.index.create_storage_id()
            await self._write(kind, in_database)
            in_storage = await self._read(kind)
        return in_storage, in_database

    async def _read(self, kind: StorageKind) -> str | None:
        try:
            blocks = [block async for block in self.backends.get(kind).read(_ID_FILE, 0, LENGTH)]
        except InstallerMissing:
            return None
        return b"".join(blocks).decode(errors="replace")

    async def _may_be_ours(self, kind: StorageKind) -> bool:
        """Whether a storage without an id has a file with a record, or neither has a file nor should have one."""
        sample: dict[str, list[str]] = defaultdict(list)
        count = 0
        async for file in self.backends.get(kind).list_files():
            sample[file.tenant_id].append(file.server_filename)
            count += 1
            if count == SAMPLE:
                break
        if not sample:
            return not await self.index.has_files_at(kind)
        for tenant_id, names in sample.items():
            if await self.index.known_names(tenant_id, names):
                return True
        return False

    async def _write(self, kind: StorageKind, storage_id: str) -> None:
        source = self.folder / FOLDER / f"{uuid4().hex}.new"
        await asyncio.to_thread(_write_file, source, storage_id)
        try:
            await self.backends.get(kind).put(_ID_FILE, source)
        finally:
            await asyncio.to_thread(source.unlink, missing_ok=True)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o750, exist_ok=True)
    with path.open("x", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class IntegrityCheck:
    """Reads files to their ends. `after_block` is called with the length of each block."""

    backends: StorageBackends
    ownership: StorageOwnership
    after_block: AfterBlock | None = None

    async def find_damage(self, upload: Upload, kind: StorageKind) -> Damage:
        """The damage of a file in this storage.

        Raises:
            Unavailable: the storage does not respond, or belongs to another database.
            OSError: the folder of installers cannot be read.
        """
        storage = self.backends.get(kind)
        for _ in range(ATTEMPTS):
            try:
                return await self._compare(storage, upload)
            except (OSError, Unavailable) as error:
                await self.require_ours(kind)
                log.warning("installer_unreadable", error=str(error), home=kind, **upload.log_fields)
        return Damage.UNREADABLE

    async def require_ours(self, kind: StorageKind) -> None:
        """Raise Unavailable unless the storage responds and belongs to the database."""
        if not await self.ownership.is_ours(kind):
            raise Unavailable(f"The storage `{kind}` is not the one that belongs to the database.")

    async def _compare(self, storage: InstallerStorage, upload: Upload) -> Damage:
        size = await storage.size(upload)
        if size != upload.size:
            return Damage.MISSING if size is None else Damage.ALTERED
        try:
            is_intact = await self._has_same_digest(storage, upload)
        except InstallerMissing:  # It was removed or truncated while it was read.
            return Damage.MISSING if await storage.size(upload) is None else Damage.ALTERED
        return Damage.NONE if is_intact else Damage.ALTERED

    async def _has_same_digest(self, storage: InstallerStorage, upload: Upload) -> bool:
        digest, batch = hashlib.sha256(), list[bytes]()
        async with aclosing(storage.read(upload, 0, upload.size)) as blocks:
            async for block in blocks:
                batch.append(block)
                if len(batch) == BATCH:
                    await asyncio.to_thread(_update, digest, batch)
                    batch = []
                if self.after_block:
                    await self.after_block(len(block))
        await asyncio.to_thread(_update, digest, batch)
        return digest.hexdigest() == upload.sha256


def _update(digest: Digest, blocks: Sequence[bytes]) -> None:
    for block in blocks:
        digest.update(block)
