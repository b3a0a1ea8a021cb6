"""The metrics of all tenants' records and quotas; an index answers each query."""

from pymongo import ASCENDING

from common.mongo import MongoDatabase
from upload_service.model import Status
from upload_service.store import NOW, QUOTA_TOTALS, STORED


class MongoMetricsStore:
    """Implements `MetricsStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]
        self._quotas = database["quotas"]

    async def open_transfers(self) -> int:
        return await self._uploads.count_documents({"status": Status.OPEN})

    async def damaged(self) -> int:
        return await self._uploads.count_documents({"damage": {"$gt": ""}, **STORED})

    async def unannounced(self) -> tuple[int, float]:
        age = {"age": {"$subtract": [NOW, "$updated_at"]}}
        oldest = await self._uploads.find_one({"announced": False}, age, sort=[("updated_at", ASCENDING)])
        return await self._uploads.count_documents({"announced": False}), oldest["age"] / 1000 if oldest else 0.0

    async def usage(self) -> list[tuple[str, int, int]]:
        fields = {"_id": False, **dict.fromkeys(QUOTA_TOTALS, True)}
        cursor = self._quotas.find({"tenant_id": {"$gt": ""}}, fields)
        return [(document["tenant_id"], document["used"], document["reserved"]) async for document in cursor]
