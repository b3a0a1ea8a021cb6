"""The collection `quotas` in MongoDB: one document for each tenant, and in it a row for each reservation.

`reserved` is the sum of the rows in `holds`. A linked file has no row: it is counted in `used`. A file that is gone
leaves its id in `settled`, so that a second request to settle it changes nothing, and one that comes too late reserves
nothing. Both kinds of rows are bounded, as the document must be.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from common.mongo import Document, MongoDatabase
from upload_service.model import Upload
from upload_service.quota.service import TooManyUploads

SETTLED_AGE = timedelta(hours=1)  # no request lives as long
SETTLED = 10_000  # rows kept of a tenant, the newest
HOLDS = 10_000  # uploads of a tenant that are open or belong to no version yet


class MongoQuotaStore:
    """Satisfies `upload_service.quota.service.QuotaStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._quotas = database["quotas"]
        self._uploads = database["uploads"]

    async def reserve(self, upload: Upload, size: int, quota: int | None) -> bool:
        """As `QuotaStore` says; for an upload that is settled nothing is reserved, and nothing refused either."""
        hold, settled = f"$holds.{upload.upload_id}", f"$settled.{upload.upload_id}"
        held = {"$ifNull": [hold, 0]}
        after: dict[str, Any] = {"$add": ["$reserved", {"$subtract": [size, held]}]}
        fits = [] if quota is None else [{"$lte": [{"$add": ["$used", after]}, quota]}]
        bounded = {"$or": [{"$gt": [hold, None]}, {"$lt": [{"$size": {"$objectToArray": "$holds"}}, HOLDS]}]}
        allowed = {"$and": [{"$lt": [held, size]}, {"$lte": [settled, None]}, bounded, *fits]}
        changes = {"$set": {"reserved": after, f"holds.{upload.upload_id}": size}}
        if await self._change(upload, allowed, changes):
            return True
        await self._make(upload.tenant_id)
        seen = {"done": {"$or": [{"$gte": [held, size]}, {"$gt": [settled, None]}]}, "bounded": bounded}
        document = await self._quotas.find_one({"tenant_id": upload.tenant_id}, seen)
        if document is not None and document["done"]:
            return True
        if document is not None and not document["bounded"]:
            raise TooManyUploads(HOLDS)
        return await self._change(upload, allowed, changes)

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

    async def release(self, upload: Upload) -> None:
        hold = f"$holds.{upload.upload_id}"
        settled = {f"settled.{upload.upload_id}": "$$NOW"}
        if await self._change(
            upload,
            {"$gt": [hold, None]},
            {"$set": {"reserved": {"$subtract": ["$reserved", hold]}, **settled}},
            {"$unset": f"holds.{upload.upload_id}"},
        ):
            return
        # Without a row a whole file was charged; of one that is not whole, whose size is 0, nothing was reserved.
        unsettled = {"$and": [{"$lte": [hold, None]}, {"$lte": [f"$settled.{upload.upload_id}", None]}]}
        changes = {"$set": {"used": {"$subtract": ["$used", upload.size]}, **settled}}
        if not await self._change(upload, unsettled, changes) and await self._make(upload.tenant_id):
            await self._change(upload, unsettled, changes)

    async def usage(self, tenant_id: str) -> tuple[int, int]:
        document = await self._quotas.find_one({"tenant_id": tenant_id}, {"used": 1, "reserved": 1})
        return (document["used"], document["reserved"]) if document else (0, 0)

    async def delete_settled(self) -> None:
        """Drop, for all tenants, the ids that nobody will settle again: old ones, of which no record is left."""
        found = self._quotas.find({"settled": {"$ne": {}}}, {"tenant_id": 1, "settled": 1, "now": "$$NOW"})
        async for document in found:
            tenant_id, rows = document["tenant_id"], list(document["settled"].items())
            latest = document["now"] - SETTLED_AGE
            surplus = len(rows) - SETTLED
            old = [upload_id for number, (upload_id, at) in enumerate(rows) if at < latest or number < surplus]
            if gone := await self._without_record(tenant_id, old):
                await self._quotas.update_one({"tenant_id": tenant_id}, {"$unset": dict.fromkeys(gone, "")})

    async def forget_tenant(self, tenant_id: str) -> None:
        await self._quotas.delete_many({"tenant_id": tenant_id})

    async def _without_record(self, tenant_id: str, upload_ids: Sequence[str]) -> list[str]:
        """Where the rows are of those settled uploads that have no record."""
        if not upload_ids:
            return []
        wanted: Document = {"tenant_id": tenant_id, "upload_id": {"$in": list(upload_ids)}}
        kept = {document["upload_id"] async for document in self._uploads.find(wanted, {"upload_id": 1})}
        return [f"settled.{upload_id}" for upload_id in upload_ids if upload_id not in kept]

    async def _make(self, tenant_id: str) -> bool:
        """Let the tenant have a ledger; whether it had none."""
        # Two of these at once are one document: the server tries an upsert by a unique key again by itself.
        made = await self._quotas.update_one(
            {"tenant_id": tenant_id},
            {"$setOnInsert": {"used": 0, "reserved": 0, "holds": {}, "settled": {}}},
            upsert=True,
        )
        return made.upserted_id is not None

    async def _change(self, upload: Upload, condition: dict[str, Any], *stages: dict[str, Any]) -> bool:
        result = await self._quotas.update_one({"tenant_id": upload.tenant_id, "$expr": condition}, list(stages))
        return result.matched_count == 1
