"""Brings complete installers to the home that the settings choose: into the object storage, or back to the folder.

A file is put to its new home and read there again before the record names that home in one conditional update; only
then it is removed from the old one. Whatever stops this leaves a whole file at the home that the record names, and what
is needed to go on. Reading it again costs as much as putting it, in traffic and in about 2 s of a processor for a GiB.

Only where every home belongs to the database: in a bucket of another installation its collector would remove the file.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from common.errors import Problem, Unavailable
from common.mongo import MongoError
from common.telemetry import log
from upload_service.maintenance.scrub import OwnershipCheck
from upload_service.model import Damage, Status, StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import InstallerStorage, StorageBackends
from upload_service.storage.migration_store import Move
from upload_service.storage.staging import Staging

RENEWAL = 15.0  # seconds; a lease lasts 60


class MoveStore(Protocol):
    """The records as the mover sees them. A method that takes a `Move` does nothing where its lease is another's."""

    async def lease_leftover(self, homes: Iterable[StorageKind], passed_over: Collection[str]) -> Move | None: ...

    async def lease_next(self, home: StorageKind, passed_over: Collection[str]) -> Move | None: ...

    async def renew(self, move: Move) -> bool: ...

    async def release(self, move: Move) -> None: ...

    async def set_storage(self, move: Move, home: StorageKind) -> bool: ...

    async def clear_previous(self, move: Move) -> None: ...

    async def mark_damaged(self, move: Move, damage: Damage) -> None: ...

    async def find(self, upload: Upload) -> Upload | None: ...


class Outcome(StrEnum):
    """What became of a file."""

    MOVED = "moved"
    CHANGED = "changed"  # Another has moved it, or it was deleted in the meantime.
    ALTERED = "altered"  # It is not what was uploaded any more; it stays, marked, and is not served.
    FAILED = "failed"  # For now; it is tried again.


class Mover:
    """Moves one file after another; any number of movers may work at once."""

    def __init__(
        self,
        store: MoveStore,
        homes: StorageBackends,
        staging: Staging,
        chosen: StorageKind,
        identity: OwnershipCheck,
        *,
        checked: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`chosen` is where files are to be; `checked` is told of the bytes that were seen to be there."""
        self._store = store
        self._homes = homes
        self._staging = staging
        self._chosen = chosen
        self._identity = identity
        self._checked = checked

    async def run(self) -> None:
        """Move what there is to be moved. Raises as `moves` does; what is left waits."""
        async for upload, outcome in self.moves():
            log.info("installer_moved", outcome=outcome, home=self._chosen, **_words(upload))

    async def moves(self) -> AsyncIterator[tuple[Upload, Outcome]]:
        """Move one file after another, and say what became of each, until there is none that nobody else has.

        Raises:
            Unavailable: a home does not answer, or is not the database's.
            StorageFull: the folder has no room.
        """
        await self.remove_leftovers()
        passed_over: set[str] = set()
        for home in (home for home in StorageKind if home in self._homes and home is not self._chosen):
            while move := await self._store.lease_next(home, passed_over):
                outcome = await self._attempt(move, self._move)
                if outcome is not Outcome.MOVED:
                    passed_over.add(move.upload.upload_id)
                yield move.upload, outcome

    async def remove_leftovers(self) -> None:
        """Remove what movers that were stopped have left at the homes before. Raises Unavailable."""
        homes = [home for home in StorageKind if home in self._homes]
        passed_over: set[str] = set()
        while move := await self._store.lease_leftover(homes, passed_over):
            passed_over.add(move.upload.upload_id)
            await self._attempt(move, self._leave)

    async def _attempt(self, move: Move, work: Callable[[Move], Awaitable[Outcome]]) -> Outcome:
        """Do a step of a move under its lease. One that failed keeps the lease, and so is tried again in a minute."""
        try:
            async with self._renewed(move):
                await self._expect_ours()
                outcome = await work(move)
        except (Unavailable, StorageFull, asyncio.CancelledError):
            await self._store.release(move)
            raise
        except (Problem, OSError) as error:
            log.error("installer_not_moved", error=type(error).__name__, **_words(move.upload))
            return Outcome.FAILED
        if outcome is not Outcome.FAILED:
            await self._store.release(move)
        return outcome

    async def _expect_ours(self) -> None:
        """Raise Unavailable unless every home belongs to the database; asked for each file, for a disk may go away."""
        for home in StorageKind:
            if home in self._homes and not await self._identity.is_ours(home):
                raise Unavailable(f"The storage `{home}` does not belong to this database; no file is moved.")

    async def _move(self, move: Move) -> Outcome:
        upload, old, new = move.upload, self._homes.of(move.upload), self._homes.get(self._chosen)
        async with self._staging.of(move.upload, old, move.token) as source:
            await new.put(upload, source)
        if not await self._is_whole(new, upload):
            return await self._give_up(move, old, new)
        if not await self._store.set_storage(move, self._chosen):
            await self._forsake(upload, new)
            return Outcome.CHANGED
        return await self._leave(replace(move, previous=upload.storage))

    async def _give_up(self, move: Move, old: InstallerStorage, new: InstallerStorage) -> Outcome:
        """What stands at the new home is not the file: see whether the old home is to blame."""
        altered = not await self._is_whole(old, move.upload)
        if not await self._may_remove(move, self._chosen):
            await self._forsake(move.upload, new)
            return Outcome.CHANGED
        await new.remove(move.upload)
        if not altered:
            log.error("installer_arrived_altered", home=self._chosen, **_words(move.upload))
            return Outcome.FAILED
        log.error("installer_altered", home=move.upload.storage, **_words(move.upload))
        await self._store.mark_damaged(move, Damage.ALTERED)
        return Outcome.ALTERED

    async def _forsake(self, upload: Upload, new: InstallerStorage) -> None:
        """The record changed under the move. Where it was deleted its files were removed, ours perhaps too early."""
        found = await self._store.find(upload)
        if found is None or found.status is Status.DELETING:
            await new.remove(upload)

    async def _leave(self, move: Move) -> Outcome:
        if await self._may_remove(move, move.previous):
            await self._homes.get(move.previous).remove(move.upload)
            await self._store.clear_previous(move)
        return Outcome.MOVED

    async def _may_remove(self, move: Move, home: StorageKind) -> bool:
        """Whether what stands at a home is nobody's: the lease is ours, and the record does not name that home.

        Whoever slept, and lost the lease, may find there what another mover has put since. What is left is a sleep of
        the lease's whole minute between the record's answer and the removal: no storage removes on a condition.
        """
        if not await self._store.renew(move):
            return False
        found = await self._store.find(move.upload)
        return found is not None and found.storage is not home

    async def _is_whole(self, home: InstallerStorage, upload: Upload) -> bool:
        digest = hashlib.sha256()
        if await home.size(upload) != upload.size:
            return False
        async with aclosing(home.read(upload, 0, upload.size)) as blocks:
            async for block in blocks:
                await asyncio.to_thread(digest.update, block)
                self._checked(len(block))
        return digest.hexdigest() == upload.sha256

    @asynccontextmanager
    async def _renewed(self, move: Move) -> AsyncIterator[None]:
        """Renew the lease within the block."""
        renewal = asyncio.create_task(self._renew(move))
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _renew(self, move: Move) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            try:
                await self._store.renew(move)
            except MongoError as error:
                log.warning("lease_not_renewed", error=type(error).__name__, **_words(move.upload))


def _words(upload: Upload) -> dict[str, str]:
    return {"tenant_id": upload.tenant_id, "server_filename": upload.server_filename}
