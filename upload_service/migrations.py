"""The migrations of the database."""

from common.mongo import MongoDatabase
from common.mongo.schema import Done, Migration, Schema, in_batches
from upload_service.model import Damage, Status, StorageKind
from upload_service.store import INDEXES, LEASE_FREE


async def _add_storage_fields(database: MongoDatabase, done: Done) -> None:
    """Releases up to 0.1.0 had one storage, and one path for each transfer.

    The files of open transfers have another path now: these transfers begin again, and their lease holders cannot
    continue.
    """
    new = {"part": 0, "home": StorageKind.FOLDER, "damage": Damage.NONE}
    restart = {"offset": 0, "tainted": False, "fence": {"$add": ["$fence", 1]}, "lease_until": LEASE_FREE}
    is_open = {"$and": [{"$eq": ["$status", Status.OPEN]}, {"$eq": [{"$type": "$part"}, "missing"]}]}
    await in_batches(
        database["uploads"],
        {"$or": [{name: {"$exists": False}} for name in new]},
        [
            {
                "$set": {
                    **{name: {"$ifNull": [f"${name}", value]} for name, value in new.items()},
                    **{name: {"$cond": [is_open, value, f"${name}"]} for name, value in restart.items()},
                }
            }
        ],
        done,
    )


SCHEMA = Schema(
    [Migration("say of each upload where its file is and that nothing is wrong with it", _add_storage_fields)], INDEXES
)
