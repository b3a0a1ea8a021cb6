"""Reads stored files again and compares them with their digests; damaged ones are marked and not served.

A read that was disturbed changes no mark: the storage does not respond or belongs to another database, or the file was
moved or removed meanwhile.
"""

import asyncio
from dataclasses import dataclass

from common.errors import Unavailable
from common.telemetry import log
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage, InstallerMissing, Upload
from upload_service.storage.filesystem import AfterBlock, StorageBackends, has_same_digest
from upload_service.storage.ownership import StorageOwnership

RATE = 20 << 20  # bytes a second, of one replica


async def limit_rate(size: int) -> None:
    """Pause after so many bytes, which leaves the disk to downloads."""
    await asyncio.sleep(size / RATE)


@dataclass(frozen=True)
class Scrub:
    """Reads one file after another. `after_block` is called with the length of each block."""

    store: MongoScrubStore
    backends: StorageBackends
    ownership: StorageOwnership
    after_block: AfterBlock = limit_rate

    async def check_due(self, interval: int) -> None:
        """Check every file that was not read for `interval` seconds; stop at one that cannot be read now."""
        while upload := await self.store.lease_due(interval):
            try:
                await self.check(upload)
            except (OSError, Unavailable) as error:
                log.warning("installer_not_checked", error=str(error), **upload.log_fields)
                return

    async def check(self, upload: Upload) -> Damage:
        """Read a file, and mark and log its damage.

        Raises:
            Unavailable: its storage does not respond, or belongs to another database.
            OSError: the disk cannot read it.
        """
        damage = await self._find_damage(upload)
        if damage is Damage.NONE:
            if await self.store.mark_intact(upload) and upload.damage:
                log.info("installer_whole_again", **upload.log_fields)
            return damage
        # An empty folder in place of an unmounted disk does not mean that all files are lost.
        if not await self.ownership.is_ours(upload.storage):
            raise Unavailable(f"The storage `{upload.storage}` is not the one that belongs to the database.")
        if not await self.store.mark_damaged(upload, damage):
            return Damage.NONE
        log.error("installer_damaged", damage=damage, version_uid=upload.version_uid, **upload.log_fields)
        return damage

    async def _find_damage(self, upload: Upload) -> Damage:
        storage = self.backends.of(upload)
        size = await storage.size(upload)
        if size != upload.size:
            return Damage.MISSING if size is None else Damage.ALTERED
        try:
            is_intact = await has_same_digest(storage, upload, self.after_block)
        except InstallerMissing:  # It was removed or truncated while it was read.
            return Damage.MISSING if await storage.size(upload) is None else Damage.ALTERED
        return Damage.NONE if is_intact else Damage.ALTERED
