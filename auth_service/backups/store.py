"""The last successful backup in MongoDB, one document: `pkgrepo backup` writes it, and a metric shows it."""

from datetime import datetime

from pymongo import IndexModel

from auth_service.audit.model import OPERATORS
from common.mongo import Indexes, MongoDatabase

BACKUP_INDEXES: Indexes = {"backups": [IndexModel(["tenant_id"], unique=True)]}


class MongoBackupStore:
    """Records backups of the whole installation, under the id that stands for its operators."""

    def __init__(self, database: MongoDatabase) -> None:
        self._backups = database["backups"]

    async def record(self, name: str, at: datetime) -> None:
        """Store that a backup succeeded; `name` is its name in its folder."""
        change = {"$set": {"name": name, "at": at}}
        await self._backups.update_one({"tenant_id": OPERATORS}, change, upsert=True)

    async def last_success(self) -> datetime | None:
        """The time of the last successful backup; None if there was none."""
        document = await self._backups.find_one({"tenant_id": OPERATORS})
        return document["at"] if document else None
