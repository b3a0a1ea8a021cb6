"""A backup of the whole, taken while everything runs.

Installers are copied first, then all records are read as of one moment, then what installers came in between. One that
these records name and that was deleted meanwhile makes us read the records again.
"""

from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from common.mongo.schema import COLLECTION
from deploy.backup.copies import Outcome, Source, has_size, installers_of, is_whole
from deploy.backup.empty import claim_storage
from deploy.backup.folder import BackupFolder
from deploy.backup.key_prints import fingerprints
from deploy.backup.manifest import BackupManifest, BackupProblem, Entry
from deploy.backup.records import DATABASES, MARKERS, Client, DatabaseSnapshot, RecordFile, snapshot_read
from deploy.operator.schemas import open_database, versions
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.publish.progress import Row
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Status, Upload
from upload_service.storage.migration_store import MongoMoveStore

ROUNDS = 10  # readings of the records; each leaves the next only what came during it


@dataclass
class Backup:
    """The command at work. Afterwards `name` is the backup's, and `lacking` has what is not in it."""

    folder: BackupFolder
    storage: Storage
    row: Row
    check: bool
    copied: int = 0
    name: str = ""
    lacking: dict[str, Outcome] = field(default_factory=dict)
    _present: set[Path] = field(default_factory=set)
    _done: int = 0

    async def take(self, where: StoreAddresses) -> None:
        """Raises BackupProblem, and Unavailable where a home of installers does not answer."""
        async with open_database(where.addresses.mongo_url, "upload") as upload:
            await claim_storage(self.storage, upload)
            reached = await versions(upload)  # Before the records are read: what they are beyond that harms nothing.
            source = Source(MongoMoveStore(upload), self.storage.homes)
            kept = MongoScrubStore(upload)
            self.row.checking(await kept.total_size(None))
            missing = []
            async for installer in kept.complete_uploads(None):
                if not await self._is_present(installer):
                    missing.append(installer)
                self._advance(installer.size)
            await self._copy(missing, source)
            records = await self._read(upload.client, source)
        manifest = BackupManifest(
            made_at=datetime.now(UTC),
            keys=fingerprints(where),
            schemas=reached,
            records=records,
            lacking=sorted(self.lacking),
        )
        self.name = self.folder.finish(manifest, where.require_audit_key())

    async def _read(self, client: Client, source: Source) -> list[Entry]:
        """The records of a moment of which every installer is here, but for what was missing or damaged before."""
        for _ in range(ROUNDS):
            making = self.folder.begin()
            records = await snapshot_read(client, lambda moment, making=making: _write(client, moment, making))  # type: ignore[misc]
            self.lacking.clear()
            missing = [upload for upload in installers_of(making) if not await self._is_present(upload)]
            if Outcome.GONE not in await self._copy(missing, source):
                return records
        raise BackupProblem("installers are deleted as fast as they come, and no moment could be kept; try again")

    async def _is_present(self, upload: Upload) -> bool:
        """Whether the folder has the installer. With `check`, its bytes are read the first time."""
        target = self.folder.file(upload.tenant_id, upload.server_filename)
        if target in self._present:
            return True
        is_present = has_size(target, upload.size) and (not self.check or await is_whole(target, upload))
        if is_present:
            self._present.add(target)
        return is_present

    async def _copy(self, uploads: list[Upload], source: Source) -> list[Outcome]:
        """Copy installers that the folder lacks. Those that cannot be copied are added to `lacking`."""
        if uploads:
            self._done = 0
            self.row.copying(sum(upload.size for upload in uploads), 0)
        return [await self._copy_one(upload, source) for upload in uploads]

    async def _copy_one(self, upload: Upload, source: Source) -> Outcome:
        target = self.folder.file(upload.tenant_id, upload.server_filename)
        outcome = await source.copy(upload, target, self._advance)
        if outcome is Outcome.COPIED:
            self.copied += 1
            self._present.add(target)
        elif outcome is not Outcome.GONE:
            self.lacking[f"{upload.tenant_id}/{upload.server_filename}"] = outcome
        return outcome

    def _advance(self, size: int) -> None:
        self._done += size
        self.row.at(self._done)


async def _write(client: Client, moment: DatabaseSnapshot, folder: Path) -> list[Entry]:
    """Write everything, and that again where a collection was made meanwhile."""
    while True:
        names = await _collections(client)
        entries = []
        for database, collection in names:
            # The bytes of unfinished transfers are not kept: their clients begin again.
            query = {"status": {"$ne": Status.OPEN}} if (database, collection) == ("upload", "uploads") else {}
            with closing(RecordFile(folder, database, collection)) as file:
                await moment.each(database, collection, query, file.take)
                entries.append(file.entry())
        if names == await _collections(client):
            return entries


async def _collections(client: Client) -> list[tuple[str, str]]:
    found = [
        (database, name) for database in DATABASES for name in sorted(await client[database].list_collection_names())
    ]
    return [names for names in found if names != MARKERS and names[1] != COLLECTION]
