"""The collection `quotas` in MongoDB: one document for each tenant, and in it a row for each reservation.

`reserved` is the sum of the rows in `holds`. A linked file has no row: it is counted in `used`. A file that is gone
leaves its id in `settled` for a while, so that a second request to settle it changes nothing.
"""

from typing import Any

from common.mongo import MongoDatabase
from upload_service.model import Upload

SETTLED_AGE = 3_600_000  # milliseconds; no request lives as long


class MongoQuotaStore:
    """Satisfies `upload_service.quota.QuotaStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._quotas = database["quotas"]

    async def reserve(self, upload: Upload, size: int, quota: int | None) -> bool:
        hold = f"$holds.{upload.upload_id}"
        held = {"$ifNull": [hold, 0]}
        after: dict[str, Any] = {"$add": ["$reserved", {"$subtract": [size, held]}]}
        fits = [] if quota is None else [{"$lte": [{"$add": ["$used", after]}, quota]}]
        changes = {"$set": {"reserved": after, f"holds.{upload.upload_id}": size}}
        if await self._change(upload, {"$and": [{"$lt": [held, size]}, *fits]}, changes):
            return True
        await self._make(upload.tenant_id)
        document = await self._quotas.find_one({"tenant_id": upload.tenant_id}, {f"holds.{upload.upload_id}": 1})
        if document is not None and document["holds"].get(upload.upload_id, 0) >= size:
            return True
        return await self._change(upload, {"$and": [{"$lt": [held, size]}, *fits]}, changes)

    async def shrink(self, upload: Upload, size: int) -> None:
        hold = f"$holds.{upload.upload_id}"
        await self._change(
            upload,
            {"$gt": [hold, size]},
            {
                "$set": {
                    "reserved": {"$subtract": ["$reserved", {"$subtract": [hold, size]}]},
                    f"holds.{upload.upload_id}": size,
                }
            },
        )

    async def charge(self, upload: Upload, quota: int | None) -> bool:
        hold = f"$holds.{upload.upload_id}"
        fits = [] if quota is None else [{"$lte": [{"$add": ["$used", "$reserved"]}, quota]}]
        charged = await self._change(
            upload,
            {"$and": [{"$gt": [hold, None]}, *fits]},
            {
                "$set": {"used": {"$add": ["$used", upload.size]}, "reserved": {"$subtract": ["$reserved", hold]}},
            },
            {"$unset": f"holds.{upload.upload_id}"},
        )
        if charged:
            return True
        # Without a row it is charged already.
        found = await self._quotas.find_one(
            {"tenant_id": upload.tenant_id, f"holds.{upload.upload_id}": {"$exists": True}}, {"_id": 1}
        )
        return found is None

    async def give_back(self, upload: Upload) -> None:
        hold = f"$holds.{upload.upload_id}"
        settled = {f"settled.{upload.upload_id}": "$$NOW"}
        reserved = await self._change(
            upload,
            {"$gt": [hold, None]},
            {"$set": {"reserved": {"$subtract": ["$reserved", hold]}, **settled}},
            {"$unset": f"holds.{upload.upload_id}"},
        )
        if not reserved and upload.version_uid:
            await self._change(
                upload,
                {"$and": [{"$lte": [hold, None]}, {"$lte": [f"$settled.{upload.upload_id}", None]}]},
                {"$set": {"used": {"$subtract": ["$used", upload.size]}, **settled}},
            )

    async def usage(self, tenant_id: str) -> tuple[int, int]:
        document = await self._quotas.find_one({"tenant_id": tenant_id}, {"used": 1, "reserved": 1})
        return (document["used"], document["reserved"]) if document else (0, 0)

    async def forget_settled(self) -> None:
        """Drop, for all tenants, the ids that nobody will settle again."""
        recent = {"$gt": ["$$row.v", {"$subtract": ["$$NOW", SETTLED_AGE]}]}
        rows = {"$filter": {"input": {"$objectToArray": "$settled"}, "as": "row", "cond": recent}}
        await self._quotas.update_many({"settled": {"$ne": {}}}, [{"$set": {"settled": {"$arrayToObject": rows}}}])

    async def forget_tenant(self, tenant_id: str) -> None:
        await self._quotas.delete_many({"tenant_id": tenant_id})

    async def _make(self, tenant_id: str) -> None:
        # Two of these at once are one document: the server tries an upsert by a unique key again by itself.
        await self._quotas.update_one(
            {"tenant_id": tenant_id},
            {"$setOnInsert": {"used": 0, "reserved": 0, "holds": {}, "settled": {}}},
            upsert=True,
        )

    async def _change(self, upload: Upload, condition: dict[str, Any], *stages: dict[str, Any]) -> bool:
        result = await self._quotas.update_one({"tenant_id": upload.tenant_id, "$expr": condition}, list(stages))
        return result.matched_count == 1
