"""How records of uploads came to look as they do."""

from common.mongo import MongoDatabase
from common.mongo.schema import Done, Migration, Schema, in_batches
from upload_service.model import Damage, Status, StorageKind
from upload_service.store import INDEXES, LEASE_FREE


async def _say_where_files_are(database: MongoDatabase, done: Done) -> None:
    """Releases up to 0.1.0 knew one home, and one place in it for each transfer.

    The files of unfinished transfers are not looked for at that place any more: those begin again, and whoever had the
    lease of one cannot go on.
    """
    new = {"part": 0, "home": StorageKind.FOLDER, "damage": Damage.NONE}
    again = {"offset": 0, "tainted": False, "fence": {"$add": ["$fence", 1]}, "lease_until": LEASE_FREE}
    begins = {"$and": [{"$eq": ["$status", Status.OPEN]}, {"$eq": [{"$type": "$part"}, "missing"]}]}
    await in_batches(
        database["uploads"],
        {"$or": [{name: {"$exists": False}} for name in new]},
        [
            {
                "$set": {
                    **{name: {"$ifNull": [f"${name}", value]} for name, value in new.items()},
                    **{name: {"$cond": [begins, value, f"${name}"]} for name, value in again.items()},
                }
            }
        ],
        done,
    )


SCHEMA = Schema(
    [Migration("say of each upload where its file is and that nothing is wrong with it", _say_where_files_are)],
    INDEXES,
)
