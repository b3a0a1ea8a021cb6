"""What figures tell of the records and quotas of all tenants: every question is answered out of an index."""

from pymongo import ASCENDING

from common.mongo import Document, MongoDatabase
from upload_service.model import Status
from upload_service.store import QUOTAS_AT_A_GLANCE


class MongoMetricsStore:
    """Satisfies `upload_service.metrics.MetricsStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]
        self._quotas = database["quotas"]

    async def open_transfers(self) -> int:
        return await self._count({"status": Status.OPEN})

    async def damaged(self) -> int:
        return await self._count({"damage": {"$gt": ""}, "status": {"$in": [Status.COMPLETE, Status.LINKED]}})

    async def unannounced(self) -> tuple[int, float]:
        """How many files nobody has heard of, and the age of the oldest in seconds, 0 without one."""
        age = {"age": {"$subtract": ["$$NOW", "$updated_at"]}}
        oldest = await self._uploads.find_one({"announced": False}, age, sort=[("updated_at", ASCENDING)])
        return await self._count({"announced": False}), oldest["age"] / 1000 if oldest else 0.0

    async def usage(self) -> list[tuple[str, int, int]]:
        """The bytes that each tenant has used and reserved."""
        shown = {"_id": False, **dict.fromkeys(QUOTAS_AT_A_GLANCE, True)}
        found = self._quotas.find({"tenant_id": {"$gt": ""}}, shown)
        return [(document["tenant_id"], document["used"], document["reserved"]) async for document in found]

    async def _count(self, wanted: Document) -> int:
        return await self._uploads.count_documents(wanted)
