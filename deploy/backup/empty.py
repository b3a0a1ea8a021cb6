"""Whether the databases and the storage that an operator names go together, are empty, and in nobody's use."""

from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from common.mongo import Document, MongoDatabase
from common.mongo.schema import COLLECTION
from deploy.backup.manifest import BackupProblem
from deploy.backup.records import DATABASES, MARKERS, Client
from deploy.local.folder import SERVICES
from deploy.operator.storage import Storage
from upload_service.maintenance.store import MongoFileIndex
from upload_service.model import StorageKind
from upload_service.storage.ownership import StorageOwnership

UNAUTHORIZED = 13  # MongoDB's code
IDENTITY = ("upload", "storage")  # which a service gives to an empty database when it starts


async def no_service_connected(client: Client) -> bool:
    """Whether no service is connected to the databases; False where MongoDB does not let us see.

    Raises BackupProblem where one is.
    """
    look: list[Document] = [
        {"$currentOp": {"allUsers": True, "idleConnections": True}},
        {"$match": {"appName": {"$in": list(SERVICES)}}},
    ]
    try:
        names = sorted(
            {
                found["appName"]
                async for found in client.get_database("admin", read_concern=ReadConcern("local")).aggregate(look)
            }
        )
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return False
    if names:
        raise BackupProblem(f"{', '.join(names)}: connected to the databases; stop every service first")
    return True


async def check_databases(client: Client) -> None:
    """Raises BackupProblem where there is any record already."""
    for database in DATABASES:
        for collection in await client[database].list_collection_names():
            if (database, collection) in {IDENTITY, MARKERS} or collection == COLLECTION:
                continue
            if await client[database][collection].find_one({}, {"_id": True}):
                raise BackupProblem(
                    f"the databases are not empty, {database}.{collection} has records: a backup is put into new ones"
                )


async def check_homes(storage: Storage) -> None:
    """Raises BackupProblem where a home has any installer already, and Unavailable."""
    for home in StorageKind:
        if home in storage.homes:
            async for kept in storage.homes.get(home).list_files():
                name = f"{kept.tenant_id}/{kept.server_filename}"
                raise BackupProblem(f"the storage `{home}` is not empty: it has {name}; a backup is put into a new one")


async def claim_storage(storage: Storage, upload: MongoDatabase) -> None:
    """Let homes that belong to no database yet belong to this one, under an id of its own.

    After a restore that is not the id of the time of the backup: what that installation has elsewhere, in a bucket for
    one, stays its own. Raises BackupProblem where a home belongs to another database, and Unavailable.
    """
    identity = StorageOwnership(MongoFileIndex(upload), storage.homes, storage.folder)
    for home in StorageKind:
        if home in storage.homes and not await identity.is_ours(home):
            raise BackupProblem(f"the storage `{home}` does not belong to this database: they have other ids")
