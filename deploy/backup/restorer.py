"""Restores a backup: installers first, then records, tenants last, so that nobody can sign in before all is there.

The backup may have been in a place where others can write. Its seal shows whether anybody changed it. File names are
always checked, because they lead to places on this machine.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pymongo.errors import DuplicateKeyError

from auth_service.audit.model import OPERATORS
from auth_service.backups.store import MongoBackupStore
from common.caching.tenant_version import TenantVersions
from common.mongo import MongoDatabase, long_timeout
from common.redis import open_redis
from deploy.backup import target
from deploy.backup.folder import BackupFolder, StoredBackup, check_records
from deploy.backup.installers import CopyOutcome, installers_of, store_copy
from deploy.backup.manifest import AUDIT, CLIENT_TOKEN, BackupProblem
from deploy.backup.records import DATABASES, Client, documents, restore_documents
from deploy.operator.audit import open_operator_audit
from deploy.operator.schemas import migrate_restored, open_database, require_known_schemas
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.operator.tenants import open_operator
from deploy.terminal import FileProgress
from upload_service.model import Status
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore

CONSEQUENCES = {
    AUDIT: "`pkgrepo audit verify` reports earlier entries as altered, until the old key is added after the new one",
    CLIENT_TOKEN: "no client's token is valid, until the old key is added after the new one",
}
MAX_NAMES = 20  # names of damaged files in one line
UNFINISHED_WORK = dict.fromkeys(("left", "moving_by", "moving_until", "checking_until"), "")  # fields of a record
ANNOUNCED_AGAIN = timedelta(days=1)  # before a backup; the broker may still have had events of that time


@dataclass
class BackupRestorer:
    """One run. Afterwards `services_stopped` says whether MongoDB showed that no service is connected."""

    folder: BackupFolder
    backup: StoredBackup
    storage: Storage
    progress: FileProgress
    without_damaged: bool = False
    other_keys: bool = False
    without_seal: bool = False
    services_stopped: bool = False
    lacking: dict[str, CopyOutcome] = field(default_factory=dict)

    async def run(self, where: StoreAddresses) -> None:
        """Restore everything. An interrupted run resumes when it is run again. Raises BackupProblem and Unavailable."""
        require_known_schemas(self.backup.manifest.schemas, "the backup's ")
        missing = self.backup.manifest.missing_keys(where)
        if missing and not self.other_keys:
            consequences = "; ".join(f"without its {key} {CONSEQUENCES[key]}" for key in missing)
            raise BackupProblem(
                f"the backup was made under other keys: {consequences}. Copy its keys to this installation: its folder "
                "of secrets, or `keys` and `audit-key` of its data folder. If they are lost, add --other-keys"
            )
        if not self.without_seal:
            self.folder.require_sealed(self.backup, where)
        records = self.folder.path / self.backup.name
        check_records(records, self.backup.manifest.records)
        async with open_database(where.addresses.mongo_url, "upload") as upload:
            source = hashlib.sha256(self.backup.manifest.model_dump_json().encode()).hexdigest()
            marker = target.RestoreMarker(upload.client, target.WHOLE_INSTALLATION, source)
            self.services_stopped = await target.no_service_connected(upload.client)
            if not await marker.is_set():
                await target.require_empty(upload.client, self.storage)
                await target.claim_storage(self.storage, upload)
                await marker.set()
            await self._restore_installers(records)
            await self._restore_records(upload.client, records)
            try:
                await migrate_restored(where, self.backup.manifest.schemas)
            except DuplicateKeyError as error:
                fields = ", ".join((error.details or {}).get("keyPattern", {}))
                raise BackupProblem(
                    f"the backup has two records with the same {fields}, which must be unique. Empty the databases and "
                    "the storage, and choose another backup with --at"
                ) from None
            await self._update_uploads(upload)
            # The backup's own records name the backup before it.
            backups = MongoBackupStore(upload.client["auth"])
            await backups.record(self.backup.name, self.backup.manifest.made_at)
            await _end_sessions(where)
            async with open_operator_audit(where) as audit:
                seal = {"seal": "not verified"} if self.without_seal else {}
                await audit.add(OPERATORS, "restore", backup=self.backup.name, **seal)
            await marker.clear()

    async def _restore_installers(self, records: Path) -> None:
        self.progress.start("copying", sum(upload.size for upload in installers_of(records)))
        known = set(self.backup.manifest.lacking)
        for upload in installers_of(records):
            name = f"{upload.tenant_id}/{upload.server_filename}"
            outcome = CopyOutcome.MISSING
            if name not in known:
                source = self.folder.file(upload.tenant_id, upload.server_filename)
                outcome = await store_copy(source, upload, self.storage, self.progress)
            if outcome is not CopyOutcome.COPIED:
                self.lacking[name] = outcome
        damaged = sorted(self.lacking.keys() - known)
        if damaged and not self.without_damaged:
            more = f" and {len(damaged) - MAX_NAMES} more" if len(damaged) > MAX_NAMES else ""
            raise BackupProblem(
                f"the backup is damaged: {', '.join(damaged[:MAX_NAMES])}{more}; repair the files in "
                f"{self.folder.path / 'files'} and run this again, or add --without-damaged"
            )

    async def _restore_records(self, client: Client, records: Path) -> None:
        for database in DATABASES:
            for entry in sorted(self.backup.manifest.records, key=lambda entry: entry.name == "auth.tenants.bson"):
                collection = entry.name.split(".")[1]
                if entry.name.startswith(f"{database}.") and (database, collection) != target.IDENTITY:
                    await restore_documents(client, database, collection, documents(records / entry.name))

    async def _update_uploads(self, upload: MongoDatabase) -> None:
        """Set the storage of the installers, remove unfinished work, and correct the quota.

        The uploads of the last day are announced again; a repeated event changes nothing. Unassigned uploads count as
        new, so that the age of the backup does not expire them.
        """
        # `announced` excludes transfers that were being deleted: nobody knows of them.
        recent = {"announced": True, "updated_at": {"$gt": self.backup.manifest.made_at - ANNOUNCED_AGAIN}}
        as_new = {"announced": False, "updated_at": datetime.now(UTC)}
        with long_timeout():
            update = {"$set": {"home": self.storage.chosen}, "$unset": UNFINISHED_WORK}
            await upload["uploads"].update_many({}, update)
            await upload["uploads"].update_many(recent, {"$set": {"announced": False}})
            await upload["uploads"].update_many({"status": Status.COMPLETE}, {"$set": as_new})
        ledgers = Reconciliation(MongoQuotaStore(upload), pause=0)
        for drift in await ledgers.find_all_drift():
            await ledgers.repair(drift)


async def _end_sessions(where: StoreAddresses) -> None:
    """End all sessions, and invalidate the caches of the gateways."""
    async with open_operator(where.addresses) as operator, open_redis(where.addresses.redis_url) as redis:
        await operator.sessions.close_tenant("*")
        for tenant in await operator.tenants.list():
            await TenantVersions(redis).bump(tenant.tenant_id)
