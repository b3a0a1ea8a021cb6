"""Reads stored files again and holds them against their digests: what is damaged is marked, and never served.

A reading that was disturbed says nothing: where the storage is away, or not the one that belongs to the records, and
where the file was moved or removed meanwhile, the mark stays as it was.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from common.errors import Unavailable
from common.telemetry import log
from upload_service.model import Damage, InstallerMissing, StorageKind, Upload
from upload_service.storage.filesystem import StorageBackends

RATE = 20 << 20  # bytes a second, of one replica


class ScrubStore(Protocol):
    """The records as the scrub sees them. What was found is noted only where the file is still there and there."""

    async def lease_due(self, interval: int) -> Upload | None:
        """A file that nobody has read for `interval` seconds and nobody is reading; for this process to read."""

    async def mark_intact(self, upload: Upload) -> bool:
        """Note that a file is as it was uploaded."""

    async def mark_damaged(self, upload: Upload, damage: Damage) -> bool:
        """Note that it is not."""


class OwnershipCheck(Protocol):
    """Tells whether a storage is the one that belongs to the records."""

    async def is_ours(self, home: StorageKind) -> bool: ...


async def gently(size: int) -> None:
    """A pause after so many bytes, which leaves the disk to those who download."""
    await asyncio.sleep(size / RATE)


class Scrub:
    """Reads one file after another. `after_block` is called with the length of each block that was read."""

    def __init__(
        self,
        store: ScrubStore,
        homes: StorageBackends,
        identity: OwnershipCheck,
        *,
        after_block: Callable[[int], Awaitable[None]] = gently,
    ) -> None:
        self._store = store
        self._homes = homes
        self._identity = identity
        self._after_block = after_block

    async def check_due(self, interval: int) -> None:
        """Read every file again that was not read for `interval` seconds; those that cannot be read now come later."""
        while upload := await self._store.lease_due(interval):
            try:
                await self.check(upload)
            except (OSError, Unavailable) as error:
                log.warning("installer_not_checked", error=str(error), **_words(upload))
                return

    async def check(self, upload: Upload) -> Damage:
        """Read a file, and note and say what is wrong with it.

        Raises:
            Unavailable: its storage does not answer, or belongs to other records.
            OSError: the disk cannot read it.
        """
        damage = await self._look(upload)
        if damage is Damage.NONE:
            if await self._store.mark_intact(upload) and upload.damage:
                log.info("installer_whole_again", **_words(upload))
            return damage
        # An empty folder where a disk should be mounted is not a hundred lost files.
        if not await self._identity.is_ours(upload.storage):
            raise Unavailable(f"The storage `{upload.storage}` is not the one that belongs to the database.")
        if not await self._store.mark_damaged(upload, damage):
            return Damage.NONE
        log.error("installer_damaged", damage=damage, version_uid=upload.version_uid, **_words(upload))
        return damage

    async def _look(self, upload: Upload) -> Damage:
        home = self._homes.of(upload)
        size = await home.size(upload)
        if size != upload.size:
            return Damage.MISSING if size is None else Damage.ALTERED
        digest = hashlib.sha256()
        try:
            async with aclosing(home.read(upload, 0, upload.size)) as blocks:
                async for block in blocks:
                    await asyncio.to_thread(digest.update, block)
                    await self._after_block(len(block))
        except InstallerMissing:  # It went, or was cut, in this very moment.
            return Damage.MISSING if await home.size(upload) is None else Damage.ALTERED
        return Damage.NONE if digest.hexdigest() == upload.sha256 else Damage.ALTERED


def _words(upload: Upload) -> dict[str, str]:
    return {"tenant_id": upload.tenant_id, "server_filename": upload.server_filename}
