"""Finished uploads in MongoDB. `note` and `link` may be called in any order, any number of times."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter
from pymongo import ASCENDING

from catalog_service.model.installers import FinishedUpload
from common.mongo import MongoDatabase

_UPLOADS = TypeAdapter(list[FinishedUpload])


class MongoUploadStore:
    """Stores the uploads of all tenants for `age` seconds."""

    def __init__(self, database: MongoDatabase, *, age: int) -> None:
        self._uploads = database["finished_uploads"]
        self._age = timedelta(seconds=age)

    async def note(self, tenant_id: str, upload: FinishedUpload) -> None:
        """Store an upload; a linked one stays linked."""
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "server_filename": upload.server_filename},
            {"$set": {**asdict(upload), "expires_at": self._expiry()}, "$setOnInsert": {"linked": False}},
            upsert=True,
        )

    async def link(self, tenant_id: str, server_filename: str) -> None:
        """Store that an upload belongs to a version; its event may still come."""
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "server_filename": server_filename},
            {"$set": {"linked": True, "expires_at": self._expiry()}},
            upsert=True,
        )

    async def unlinked(self, tenant_id: str) -> Sequence[FinishedUpload]:
        """Return the uploads without a known version, the oldest first."""
        cursor = self._uploads.find(
            {"tenant_id": tenant_id, "linked": False}, sort=[("finished_at", ASCENDING), ("server_filename", ASCENDING)]
        )
        return _UPLOADS.validate_python(await cursor.to_list(None))

    def _expiry(self) -> datetime:
        return datetime.now(UTC) + self._age
