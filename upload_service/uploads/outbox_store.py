"""Announcements in the collection `uploads`: `announced` is whether anybody has heard of a complete file."""

from pymongo import ASCENDING, ReturnDocument

from common.mongo import MongoDatabase
from upload_service.model import Upload
from upload_service.store import to_upload_or_none

ANNOUNCING = 5_000  # milliseconds that an announcement may take, and that a failed one waits

_NOW = "$$NOW"


class MongoOutboxStore:
    """What is to be announced, each for one relay at a time by the database's clock."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def lease_unannounced(self) -> Upload | None:
        """The oldest file of all tenants that nobody has heard of, and that no other relay has in hand."""
        document = await self._uploads.find_one_and_update(
            {"announced": False, "$expr": {"$lt": ["$announcing_until", _NOW]}},
            [{"$set": {"announcing_until": {"$add": [_NOW, ANNOUNCING]}}}],
            sort=[("updated_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return to_upload_or_none(document)

    async def mark_announced(self, upload: Upload) -> None:
        await self._uploads.update_one(
            {"tenant_id": upload.tenant_id, "file_id": upload.file_id, "upload_id": upload.upload_id},
            {"$set": {"announced": True}},
        )
