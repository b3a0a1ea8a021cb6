"""Restores a backup: installers first, then records, tenants last, so that nobody can sign in before all is there.

The backup may have been in a place where others can write. Its seal shows whether anybody changed it. File names are
always checked, because they lead to places on this machine. The databases and the storage are checked first.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo.errors import DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern

from auth_service.audit.store import OPERATORS
from auth_service.store import MongoBackupStore
from common.mongo import Document, MongoDatabase, long_timeout
from common.redis import TenantVersions, open_redis
from common.work import due_now
from deploy.backup.folder import BackupFolder, StoredBackup
from deploy.backup.installers import CopyOutcome, installers_of, store_copy
from deploy.backup.records import (
    AUDIT,
    CLIENT_TOKEN,
    DATABASES,
    MARKERS,
    BackupProblem,
    Client,
    collections,
    documents,
    restore_documents,
)
from deploy.local.folder import SERVICES
from deploy.operator.stores import Storage, StoreAddresses, migrate_restored, open_database
from deploy.operator.tenants import open_operator, open_operator_audit
from deploy.terminal import FileProgress
from upload_service.model import Status
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.integrity import StorageOwnership
from upload_service.storage.store import MongoFileIndex
from upload_service.store import ANNOUNCE, MOVE, STORED

UNAUTHORIZED = 13  # MongoDB's code
IDENTITY = ("upload", "storage")  # A service writes it to an empty database when it starts.
WHOLE_INSTALLATION = "*"  # no tenant has this id
CONSEQUENCES = {
    AUDIT: "`pkgrepo audit verify` reports earlier entries as altered, until the old key is added after the new one",
    CLIENT_TOKEN: "no client's token is valid, until the old key is added after the new one",
}
MAX_NAMES = 20  # names of damaged files in one line
UNFINISHED_WORK = dict.fromkeys(("left", f"work.{MOVE}"), "")  # fields of a record
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
        missing = self.backup.manifest.missing_keys(where)
        if missing and not self.other_keys:
            consequences = "; ".join(f"without its {key} {CONSEQUENCES[key]}" for key in missing)
            raise BackupProblem(
                f"the backup was made under other keys: {consequences}. Copy its keys to this installation: its folder "
                "of secrets, or `keys` and `audit-key` of its data folder. If they are lost, add --other-keys"
            )
        self.folder.verify(self.backup, where, without_seal=self.without_seal)
        async with open_database(where.addresses.mongo_url, "upload") as upload:
            source = hashlib.sha256(self.backup.manifest.model_dump_json().encode()).hexdigest()
            marker = RestoreMarker(upload.client, WHOLE_INSTALLATION, source)
            self.services_stopped = await no_service_connected(upload.client)
            if not await marker.is_set():
                await require_empty(upload.client, self.storage)
                await claim_storage(self.storage, upload)
                await marker.set()
            await self._restore_installers()
            await self._restore_records(upload.client)
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

    async def _restore_installers(self) -> None:
        self.progress.start("copying", sum(upload.size for upload in installers_of(self.backup.path)))
        known = set(self.backup.manifest.lacking)
        for upload in installers_of(self.backup.path):
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

    async def _restore_records(self, client: Client) -> None:
        for database in DATABASES:
            for entry in sorted(self.backup.manifest.records, key=lambda entry: entry.name == "auth.tenants.bson"):
                collection = entry.name.split(".")[1]
                if entry.name.startswith(f"{database}.") and (database, collection) != IDENTITY:
                    await restore_documents(client, database, collection, documents(self.backup.path / entry.name))

    async def _update_uploads(self, upload: MongoDatabase) -> None:
        """Set the storage of the installers, remove unfinished work, and correct the quota.

        The uploads of the last day are announced again; a repeated event changes nothing. Unassigned uploads count as
        new, so that the age of the backup does not expire them.
        """
        recent = {**STORED, "updated_at": {"$gt": self.backup.manifest.made_at - ANNOUNCED_AGAIN}}
        as_new = {"updated_at": datetime.now(UTC), **due_now(ANNOUNCE)}
        with long_timeout():
            update = {"$set": {"home": self.storage.chosen}, "$unset": UNFINISHED_WORK}
            await upload["uploads"].update_many({}, update)
            await upload["uploads"].update_many(recent, [{"$set": due_now(ANNOUNCE)}])
            await upload["uploads"].update_many({"status": Status.COMPLETE}, [{"$set": as_new}])
        ledgers = Reconciliation(MongoQuotaStore(upload), pause=0)
        for drift in await ledgers.find_all_drift():
            await ledgers.repair(drift)


async def _end_sessions(where: StoreAddresses) -> None:
    """End all sessions, and invalidate the caches of the gateways."""
    async with open_operator(where.addresses) as operator, open_redis(where.addresses.redis_url) as redis:
        await operator.sessions.close_tenant("*")
        for tenant in await operator.tenants.list():
            await TenantVersions(redis).bump(tenant.tenant_id)


async def no_service_connected(client: Client) -> bool:
    """False if MongoDB does not show its connections, else True. Raises BackupProblem if a service is connected."""
    pipeline: list[Document] = [
        {"$currentOp": {"allUsers": True, "idleConnections": True}},
        {"$match": {"appName": {"$in": list(SERVICES)}}},
    ]
    admin = client.get_database("admin", read_concern=ReadConcern("local"))
    try:
        names = sorted({connection["appName"] async for connection in admin.aggregate(pipeline)})
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return False
    if names:
        raise BackupProblem(f"{', '.join(names)}: connected to the databases; stop every service first")
    return True


async def require_empty(client: Client, storage: Storage) -> None:
    """Raise BackupProblem if a database has any record, or a storage any installer. Raises Unavailable."""
    for database, collection in await collections(client):
        if (database, collection) != IDENTITY and await client[database][collection].find_one({}, {"_id": True}):
            raise BackupProblem(
                f"the databases are not empty, {database}.{collection} has records; restore into new databases"
            )
    for kind in storage.backends.kinds:
        async for stored in storage.backends.get(kind).list_files():
            name = f"{stored.tenant_id}/{stored.server_filename}"
            raise BackupProblem(f"the storage `{kind}` is not empty: it has {name}; restore into a new storage")


async def claim_storage(storage: Storage, upload: MongoDatabase) -> None:
    """Assign storage that belongs to no database to this one, under a new id.

    A restore does not take the id of the backup, so the storage of the earlier installation, such as a bucket, stays
    its own. Raises BackupProblem if storage belongs to another database, and Unavailable.
    """
    identity = StorageOwnership(MongoFileIndex(upload), storage.backends, storage.folder)
    for kind in storage.backends.kinds:
        if not await identity.is_ours(kind):
            raise BackupProblem(f"the storage `{kind}` does not belong to this database: their ids differ")


class RestoreMarker:
    """A record while a tenant, a package or WHOLE_INSTALLATION is restored; only the same source may resume."""

    run_id = ""  # of the open run: the same when it resumes, and no other run's
    is_committed = False  # whether that run has written all of its records

    def __init__(self, client: Client, what: str, source: str) -> None:
        database, collection = MARKERS
        self._markers = client[database][collection]
        self._key, self._source = {"_id": what}, {"source": source}

    async def is_set(self) -> bool:
        """Whether a run from this source began and did not finish."""
        document = await self._markers.find_one({**self._key, **self._source})
        self.run_id = document.get("run_id", "") if document else ""
        self.is_committed = document is not None and document.get("is_committed", False)
        return document is not None

    async def mark_committed(self, session: AsyncIOMotorClientSession) -> None:
        """Note within the transaction of the records that they are written."""
        await self._markers.update_one(self._key, {"$set": {"is_committed": True}}, session=session)

    async def set(self) -> None:
        self.run_id = uuid4().hex
        await self._markers.replace_one(self._key, {**self._source, "run_id": self.run_id}, upsert=True)

    async def clear(self) -> None:
        await self._markers.delete_one(self._key)
