"""Creates a backup while the services run.

Installers are copied first. Then all records are read from one snapshot, and the installers that were added meanwhile
are copied. If an installer of these records was deleted meanwhile, the records are read again.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from deploy.backup.folder import BackupFolder
from deploy.backup.installers import CopyOutcome, InstallerSource, has_size, installers_of, is_intact
from deploy.backup.manifest import BackupManifest, BackupProblem, Entry, key_fingerprints
from deploy.backup.records import Client, DatabaseSnapshot, collections, snapshot_read
from deploy.backup.target import claim_storage
from deploy.operator.schemas import open_database, versions
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.terminal import FileProgress
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Status, Upload
from upload_service.storage.store import MongoMoveStore

CALL_TIMEOUT = 60.0  # seconds of one call: a backup may wait for a busy MongoDB
ATTEMPTS = 10  # at reading the records; after each, fewer installers are left to copy


@dataclass
class BackupCreator:
    """One run. Afterwards `name` is the backup's, and `lacking` has the installers that are not in it."""

    folder: BackupFolder
    storage: Storage
    progress: FileProgress
    check: bool
    copied: int = 0
    name: str = ""
    lacking: dict[str, CopyOutcome] = field(default_factory=dict)
    _present: set[Path] = field(default_factory=set)

    async def run(self, where: StoreAddresses) -> None:
        """A further call resumes. Raises BackupProblem, MongoError, and Unavailable if a storage does not answer."""
        async with open_database(where.addresses.mongo_url, "upload", timeout=CALL_TIMEOUT) as upload:
            await claim_storage(self.storage, upload)
            # Read before the records: records may be of a later schema than the manifest says, not of an earlier one.
            schemas = await versions(upload)
            source = InstallerSource(MongoMoveStore(upload).find, self.storage.backends)
            stored = MongoScrubStore(upload)
            self.progress.start("checking", await stored.total_size(None))
            missing = []
            async for installer in stored.complete_uploads(None):
                if not await self._is_present(installer):
                    missing.append(installer)
                self.progress.advance(installer.size)
            await self._copy(missing, source)
            records = await self._read_records(upload.client, source)
        keys, lacking = key_fingerprints(where), sorted(self.lacking)
        manifest = BackupManifest(
            made_at=datetime.now(UTC), keys=keys, schemas=schemas, records=records, lacking=lacking
        )
        self.name = self.folder.finish(manifest, where.require_audit_key())

    async def _read_records(self, client: Client, source: InstallerSource) -> list[Entry]:
        """The records of a snapshot whose installers are all copied, except for missing and damaged ones."""
        for _ in range(ATTEMPTS):
            folder = self.folder.begin()
            records = await snapshot_read(client, partial(_write_records, client, folder))
            self.lacking.clear()
            missing = [upload for upload in installers_of(folder) if not await self._is_present(upload)]
            if CopyOutcome.GONE not in await self._copy(missing, source):
                return records
        raise BackupProblem("installers are deleted while they are copied; try again when fewer are deleted")

    async def _is_present(self, upload: Upload) -> bool:
        """Whether the folder has the installer. With `check`, its bytes are read the first time."""
        target = self.folder.file(upload.tenant_id, upload.server_filename)
        if target in self._present:
            return True
        if not has_size(target, upload.size) or (self.check and not await is_intact(target, upload)):
            return False
        self._present.add(target)
        return True

    async def _copy(self, uploads: list[Upload], source: InstallerSource) -> list[CopyOutcome]:
        """Copy installers to the folder. Those that cannot be copied are added to `lacking`."""
        if uploads:
            self.progress.start("copying", sum(upload.size for upload in uploads))
        outcomes = []
        for upload in uploads:
            target = self.folder.file(upload.tenant_id, upload.server_filename)
            outcome = await source.copy(upload, target, self.progress)
            if outcome is CopyOutcome.COPIED:
                self.copied += 1
                self._present.add(target)
            elif outcome is not CopyOutcome.GONE:
                self.lacking[f"{upload.tenant_id}/{upload.server_filename}"] = outcome
            outcomes.append(outcome)
        return outcomes


async def _write_records(client: Client, folder: Path, snapshot: DatabaseSnapshot) -> list[Entry]:
    """Write all collections, and again if a collection was created meanwhile."""
    while True:
        names = await collections(client)
        entries = []
        for database, collection in names:
            # Unfinished transfers are left out, because their bytes are: their clients begin again.
            query = {"status": {"$ne": Status.OPEN}} if (database, collection) == ("upload", "uploads") else {}
            entries.append(await snapshot.export(database, collection, folder, query))
        if names == await collections(client):
            return entries
