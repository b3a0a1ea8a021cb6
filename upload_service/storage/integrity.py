"""Compares a stored file with the digest of its upload.

A failed read has two causes. The storage does not respond: then nothing is known about the file. Or the storage cannot
read this one file, such as an object in an archive tier or on a bad sector. The storage's id file tells them apart.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from common.errors import Unavailable
from common.telemetry import log
from upload_service.model import Damage, InstallerMissing, StorageKind, Upload
from upload_service.storage.filesystem import InstallerStorage, StorageBackends
from upload_service.storage.ownership import StorageOwnership
from upload_service.storage.part_files import Digest

ATTEMPTS = 2  # to read a file, while its storage responds
BATCH = 8  # blocks that one visit to a thread hashes

AfterBlock = Callable[[int], Awaitable[None]]


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
