"""The databases and the storage that a backup or an archive is written to: checks, and the marker of an open run."""

from uuid import uuid4

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from common.mongo import Document, MongoDatabase
from deploy.backup.manifest import BackupProblem
from deploy.backup.records import MARKERS, Client, collections
from deploy.local.folder import SERVICES
from deploy.operator.storage import Storage
from upload_service.storage.integrity import StorageOwnership
from upload_service.storage.store import MongoFileIndex

UNAUTHORIZED = 13  # MongoDB's code
IDENTITY = ("upload", "storage")  # A service writes it to an empty database when it starts.
WHOLE_INSTALLATION = "*"  # no tenant has this id


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
