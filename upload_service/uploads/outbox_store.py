"""The outbox in the collection `uploads`: a complete file with `announced: false` is still to be announced."""

from pymongo import ASCENDING, ReturnDocument

from common.mongo import MongoDatabase
from upload_service.model import Upload
from upload_service.store import NOW, from_now, record_key, to_upload_or_none

ANNOUNCING = 5_000  # milliseconds that an announcement may take, and until a failed one is repeated


class MongoOutboxStore:
    """Implements `OutboxStore`; each announcement is leased to one relay at a time."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def lease_unannounced(self) -> Upload | None:
        document = await self._uploads.find_one_and_update(
            {"announced": False, "$expr": {"$lt": ["$announcing_until", NOW]}},
            [{"$set": {"announcing_until": from_now(ANNOUNCING)}}],
            sort=[("updated_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return to_upload_or_none(document)

    async def mark_announced(self, upload: Upload) -> None:
        await self._uploads.update_one(record_key(upload), {"$set": {"announced": True}})
