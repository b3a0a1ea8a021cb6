"""Creates a backup while the services run, and waits for a store that is slow or away.

Installers are copied first. Then all records are read from one snapshot, and the installers that were added meanwhile
are copied. If an installer of these records was deleted meanwhile, the records are read again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import stamina
import stamina.instrumentation

from common.errors import Unavailable
from common.mongo import MongoError
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import CopyOutcome, InstallerSource, copy_installer, has_size, installers_of, is_intact
from deploy.backup.records import (
    BackupManifest,
    BackupProblem,
    Client,
    DatabaseSnapshot,
    Entry,
    collections,
    key_fingerprints,
    snapshot_read,
)
from deploy.backup.restorer import claim_storage
from deploy.operator.stores import Storage, StoreAddresses, describe, is_temporary, open_database, versions
from deploy.operator.tenants import NotRecorded
from deploy.terminal import FileProgress
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Status, Upload
from upload_service.storage.store import MongoMoveStore

CALL_TIMEOUT = 60.0  # seconds of one call: a backup may wait for a busy MongoDB
ATTEMPTS = 10  # at reading the records; after each, fewer installers are left to copy
RETRIES = 8  # with pauses of about 2, 4, 8, 16, 32, 60 and 60 seconds: longer than a restart of MongoDB
Result = TypeVar("Result")


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
            write = partial(copy_installer, target=target, progress=self.progress)
            outcome = await source.copy(upload, write, self.progress)
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


_retrying = stamina.AsyncRetryingCaller(
    attempts=RETRIES, timeout=None, wait_initial=2.0, wait_max=60.0, wait_jitter=1.0
).on(lambda error: bool(_passing_cause(error)))


async def run_with_retries(work: Callable[[], Awaitable[Result]]) -> Result:
    """The result of the work, which can be repeated. Raises BackupProblem after the last attempt."""
    try:
        return await _retrying(work)
    except (MongoError, NotRecorded, Unavailable) as error:
        if cause := _passing_cause(error):
            raise BackupProblem(
                f"{cause}. Gave up after {RETRIES} attempts. Run the same command again when the store answers; "
                "installers that were copied are not copied again"
            ) from error
        raise


def print_retries(print_line: Callable[[str], None]) -> None:
    """Print a line before each further attempt."""

    def on_retry(details: stamina.instrumentation.RetryDetails) -> None:
        print_line(f"{_passing_cause(details.caused_by)}. Trying again in {details.wait_for:.0f} s.")

    stamina.instrumentation.set_on_retry_hooks([on_retry])


def _passing_cause(error: BaseException | None) -> str:
    """The cause of a failure that may pass by itself, in one sentence without a full stop; "" for any other."""
    if isinstance(error, NotRecorded):
        error = error.__context__  # the failure of the audit log
    if isinstance(error, Unavailable):
        return error.detail.removesuffix(".")
    return describe(error) if isinstance(error, MongoError) and is_temporary(error) else ""
