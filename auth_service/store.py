"""The indexes of the database `auth`, which has no migrations, and the times of backups."""

from datetime import datetime

from pymongo import IndexModel

from auth_service.audit.store import AUDIT_INDEXES, OPERATORS
from auth_service.oidc.store import PROVIDER_INDEXES
from auth_service.tenants.store import TENANT_INDEXES
from auth_service.users.store import USER_INDEXES
from auth_service.users.token_store import TOKEN_INDEXES
from common.mongo import Indexes, MongoDatabase
from common.mongo.schema import Schema

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


SCHEMA = Schema(
    [],
    {**TENANT_INDEXES, **USER_INDEXES, **TOKEN_INDEXES, **PROVIDER_INDEXES, **AUDIT_INDEXES, **BACKUP_INDEXES},
)
