"""Reads stored files again and compares them with their digests; damaged ones are marked and not served.

A read that was disturbed changes no mark: the storage does not respond or belongs to another database, or the file was
moved or removed meanwhile.
"""

import asyncio
from dataclasses import dataclass

from common.errors import Unavailable
from common.telemetry import log
from common.work import Lease, Postponed
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage, Upload
from upload_service.storage.integrity import IntegrityCheck

RATE = 20 << 20  # bytes a second, of one replica


async def limit_rate(size: int) -> None:
    """Pause after so many bytes, which leaves the disk to downloads."""
    await asyncio.sleep(size / RATE)


@dataclass(frozen=True)
class Scrub:
    """Reads one file after another."""

    store: MongoScrubStore
    integrity: IntegrityCheck

    async def check_leased(self, lease: Lease[Upload]) -> None:
        """Check a file that is due. Raises Postponed if its storage does not respond."""
        try:
            damage = await self.check(lease.record)
        except (OSError, Unavailable) as error:
            raise Postponed("installer_not_checked", error=str(error), **lease.record.log_fields) from None
        await self.store.read_again(lease, damage)

    async def check(self, upload: Upload) -> Damage:
        """Read a file, and mark and log its damage.

        Raises:
            Unavailable: its storage does not respond, or belongs to another database.
            OSError: the folder of installers cannot be read.
        """
        damage = await self.integrity.find_damage(upload, upload.storage)
        if damage is Damage.NONE:
            if await self.store.mark_intact(upload) and upload.damage:
                log.info("installer_whole_again", **upload.log_fields)
            return damage
        # An empty folder in place of an unmounted disk does not mean that all files are lost.
        await self.integrity.require_ours(upload.storage)
        if not await self.store.mark_damaged(upload, damage):
            return Damage.NONE
        log.error("installer_damaged", damage=damage, version_uid=upload.version_uid, **upload.log_fields)
        return damage
