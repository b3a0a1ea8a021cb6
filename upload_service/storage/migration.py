"""Moves complete installers to the storage that the settings choose: to object storage, or back to the folder.

A file is put into the new storage and read back before one conditional update names that storage in the record. Only
then the old file is removed. After any interruption the storage in the record has a whole file, and a later call
continues. Reading back costs as much traffic as writing, and about 1 s of a processor for a GB.

Nothing is moved unless every storage belongs to the database: another installation's collector would remove the file.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from common.errors import Problem, Unavailable
from common.telemetry import log
from common.work import Lease, do_leased
from upload_service.model import Damage, Status, StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends
from upload_service.storage.integrity import IntegrityCheck
from upload_service.storage.part_files import PartFile, PartFiles, PartWriter
from upload_service.storage.store import MongoMoveStore, Move

# The error of a failed read from each storage.
READ_ERRORS: Mapping[StorageKind, type[Exception]] = {StorageKind.FOLDER: OSError, StorageKind.S3: Unavailable}


class Outcome(StrEnum):
    """The result of moving one file."""

    MOVED = "moved"
    CHANGED = "changed"  # Another mover has moved it, or it was deleted meanwhile.
    ALTERED = "altered"  # It is not what was uploaded. It stays, is marked, and is not served.
    UNREADABLE = "unreadable"  # Its storage responds, but cannot read it. It is treated like an altered one.
    FAILED = "failed"  # It is tried again later.


@dataclass(frozen=True)
class Staging:
    """Provides an installer as a local file."""

    folder: FolderStorage
    parts: PartFiles

    @asynccontextmanager
    async def open(self, upload: Upload, storage: InstallerStorage, token: str) -> AsyncIterator[Path]:
        """The path of a complete file: its own in the folder, else that of a copy, which this block removes.

        The copy is named after `token` and is beside the transfers' files; removing the upload removes it as well.
        Raises StorageFull, InstallerMissing and Unavailable.
        """
        if upload.storage is StorageKind.FOLDER:
            await storage.size(upload)  # Gives the file its final name, if it has none yet.
            yield self.folder.path(upload)
            return
        if (await asyncio.to_thread(shutil.disk_usage, self.parts.folder)).free < upload.size:
            raise StorageFull  # Before gigabytes were fetched in vain.
        part = self.parts.path(upload)
        copy = part.parent.with_name(f"{upload.upload_id}.{token}") / part.name
        try:
            async with aclosing(storage.read(upload, 0, upload.size)) as blocks:
                await PartWriter(lambda: PartFile(copy, 0, None)).write(blocks)
            yield copy
        finally:
            await asyncio.to_thread(_remove, copy)


@dataclass(frozen=True)
class Mover:
    """Moves one file after another to the storage `target`; any number of movers may work at once."""

    store: MongoMoveStore
    backends: StorageBackends
    staging: Staging
    target: StorageKind
    integrity: IntegrityCheck

    async def run(self) -> None:
        """Move all files; raises as `moves` does."""
        async for upload, outcome in self.moves():
            log.info("installer_moved", outcome=outcome, home=self.target, **upload.log_fields)

    async def moves(self) -> AsyncIterator[tuple[Upload, Outcome]]:
        """Move one file after another, with the result of each, until all others are leased to other movers.

        Raises:
            Unavailable: a storage does not respond, or does not belong to the database.
            StorageFull: the folder has no room.
        """
        await self.store.make_due(kind for kind in self.backends.kinds if kind is not self.target)
        while lease := await self.store.queue.lease():
            if outcome := await self._move_leased(lease):
                yield lease.record.upload, outcome

    async def _move_leased(self, lease: Lease[Move]) -> Outcome | None:
        """Move a file; None if only the copy in its previous storage was to be removed."""
        outcome: Outcome | None = Outcome.CHANGED  # if the lease is lost

        async def work(lease: Lease[Move]) -> None:
            nonlocal outcome
            for kind in self.backends.kinds:  # Checked for each file, because a disk may be unmounted.
                if not await self.integrity.ownership.is_ours(kind):
                    raise Unavailable(f"The storage `{kind}` does not belong to this database; no file is moved.")
            outcome = await self._move(lease)

        queue, upload = self.store.queue, lease.record.upload
        try:
            await do_leased(queue, lease, work)
        except (Unavailable, StorageFull):
            await queue.release(lease)
            raise
        except (Problem, OSError) as error:
            log.error("installer_not_moved", error=type(error).__name__, **upload.log_fields)
            outcome = Outcome.FAILED
        if outcome is Outcome.FAILED:
            await queue.retry(lease)
        return outcome

    async def _move(self, lease: Lease[Move]) -> Outcome | None:
        upload = lease.record.upload
        if lease.record.previous:
            await self._remove_previous(lease, lease.record.previous)
            return None
        if upload.storage is self.target or upload.damage:  # It has changed since it was due.
            await self.store.queue.finish(lease)
            return None
        old, new = self.backends.of(upload), self.backends.get(self.target)
        try:
            async with self.staging.open(upload, old, lease.token) as source:
                await new.put(upload, source)
        except READ_ERRORS[upload.storage]:
            if await self.integrity.find_damage(upload, upload.storage) is Damage.UNREADABLE:
                return await self._mark_damaged(lease, Damage.UNREADABLE)
            raise
        if await self.integrity.find_damage(upload, self.target):
            return await self._reject_copy(lease, new)
        if not await self.store.set_storage(lease, self.target):
            return await self._abandon_copy(upload, new)
        await self._remove_previous(lease, upload.storage)
        return Outcome.MOVED

    async def _reject_copy(self, lease: Lease[Move], new: InstallerStorage) -> Outcome:
        """The copy is not the upload: remove it, and find out whether the old file is damaged."""
        upload = lease.record.upload
        damage = await self.integrity.find_damage(upload, upload.storage)
        if not await self._may_remove(lease, self.target):
            return await self._abandon_copy(upload, new)
        await new.remove(upload)
        if damage is Damage.NONE:
            log.error("installer_arrived_altered", home=self.target, **upload.log_fields)
            return Outcome.FAILED
        return await self._mark_damaged(lease, damage)

    async def _mark_damaged(self, lease: Lease[Move], damage: Damage) -> Outcome:
        upload = lease.record.upload
        log.error("installer_damaged", damage=damage, home=upload.storage, **upload.log_fields)
        await self.store.mark_damaged(lease, damage)
        return Outcome.UNREADABLE if damage is Damage.UNREADABLE else Outcome.ALTERED

    async def _abandon_copy(self, upload: Upload, new: InstallerStorage) -> Outcome:
        """The record has changed. If it was deleted, its files may have been removed before ours was stored."""
        record = await self.store.find(upload)
        if record is None or record.status is Status.DELETING:
            await new.remove(upload)
        return Outcome.CHANGED

    async def _remove_previous(self, lease: Lease[Move], previous: StorageKind) -> None:
        if await self._may_remove(lease, previous):
            await self.backends.get(previous).remove(lease.record.upload)
            await self.store.clear_previous(lease)

    async def _may_remove(self, lease: Lease[Move], kind: StorageKind) -> bool:
        """Whether the lease is ours, and the record does not name this storage.

        Another mover may have put the file there after our lease expired. A process that sleeps for the whole minute of
        the lease between this answer and the removal is not covered: no storage removes on a condition.
        """
        if not await self.store.renew(lease):
            return False
        record = await self.store.find(lease.record.upload)
        return record is not None and record.storage is not kind


def _remove(copy: Path) -> None:
    with suppress(FileNotFoundError):
        copy.unlink(missing_ok=True)
        copy.parent.rmdir()
