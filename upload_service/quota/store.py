"""The collection `quotas` in MongoDB: one document for each tenant, with a row for each reservation.

`reserved` is the sum of the rows in `holds`. A linked file has no row: `used` includes it. The id of a removed file is
in `settled`, so that a repeated or late request for it changes nothing. Both kinds of rows are limited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from common.errors import TooManyRequests
from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Status, Upload
from upload_service.store import NOW, STORED, older_than

SETTLED_AGE = timedelta(hours=1)  # longer than any request
SETTLED = 10_000  # rows of a tenant; the newest stay
HOLDS = 10_000  # uploads of a tenant that are open or belong to no version

EMPTY: Document = {"used": 0, "reserved": 0, "holds": {}, "settled": {}}
_FIELDS = ("file_id", "upload_id", "total", "offset", "status", "size")


class TooManyUploads(TooManyRequests):
    """The ledger of the tenant has no room for another upload."""

    code = "too_many_uploads"
    text = "Limit of {limit} unassigned uploads reached; publish or delete some."
    retry_after = 60


@dataclass(frozen=True)
class Ledger:
    """A tenant's ledger. Bytes: `used` by linked files, `reserved` as the sum of `holds` by upload id.

    `settled` are uploads that are not in it any more, though their record may still exist.
    """

    used: int
    reserved: int
    holds: Mapping[str, int]
    settled: frozenset[str] = frozenset()


class Usage(NamedTuple):
    """The storage of a tenant: bytes `used` and `reserved`, and the number of `damaged` files."""

    used: int
    reserved: int
    damaged: int


class MongoQuotaStore:
    """Each change is one conditional update; repeating it changes nothing."""

    def __init__(self, database: MongoDatabase) -> None:
        self._client = database.client
        self._quotas = database["quotas"]
        self._uploads = database["uploads"]

    async def reserve(self, upload: Upload, size: int, quota: int | None) -> bool:
        """Reserve at least `size` bytes; False if that would exceed the quota. Raises TooManyUploads.

        A settled upload reserves nothing and is not refused.
        """
        hold, settled = f"$holds.{upload.upload_id}", f"$settled.{upload.upload_id}"
        held = {"$ifNull": [hold, 0]}
        after: dict[str, Any] = {"$add": ["$reserved", {"$subtract": [size, held]}]}
        fits = [] if quota is None else [{"$lte": [{"$add": ["$used", after]}, quota]}]
        has_room = {"$or": [{"$gt": [hold, None]}, {"$lt": [{"$size": {"$objectToArray": "$holds"}}, HOLDS]}]}
        allowed = {"$and": [{"$lt": [held, size]}, {"$lte": [settled, None]}, has_room, *fits]}
        changes = {"$set": {"reserved": after, f"holds.{upload.upload_id}": size}}
        if await self._update(upload, allowed, changes):
            return True
        await self._create(upload.tenant_id)
        fields = {"done": {"$or": [{"$gte": [held, size]}, {"$gt": [settled, None]}]}, "has_room": has_room}
        document = await self._quotas.find_one({"tenant_id": upload.tenant_id}, fields)
        if document is not None and document["done"]:
            return True
        if document is not None and not document["has_room"]:
            raise TooManyUploads(limit=HOLDS)
        return await self._update(upload, allowed, changes)

    async def shrink(self, upload: Upload, size: int) -> None:
        """Reduce the upload's reservation to `size` bytes."""
        hold = f"$holds.{upload.upload_id}"
        reserved = {"$subtract": ["$reserved", {"$subtract": [hold, size]}]}
        fields = {"reserved": reserved, f"holds.{upload.upload_id}": size}
        await self._update(upload, {"$gt": [hold, size]}, {"$set": fields})

    async def charge(self, upload: Upload, quota: int | None) -> bool:
        """Turn the upload's reservation into use; False if used and reserved together exceed the quota."""
        row = f"holds.{upload.upload_id}"
        fits = [] if quota is None else [{"$lte": [{"$add": ["$used", "$reserved"]}, quota]}]
        fields = {"used": {"$add": ["$used", upload.size]}, "reserved": {"$subtract": ["$reserved", f"${row}"]}}
        if await self._update(upload, {"$and": [{"$gt": [f"${row}", None]}, *fits]}, {"$set": fields}, {"$unset": row}):
            return True
        # Without a row it is charged already.
        query = {"tenant_id": upload.tenant_id, row: {"$exists": True}}
        return await self._quotas.find_one(query, {"_id": 1}) is None

    async def release(self, upload: Upload) -> None:
        """Drop the upload's reservation, or its use."""
        row = f"holds.{upload.upload_id}"
        settled = {f"settled.{upload.upload_id}": "$$NOW"}
        fields = {"reserved": {"$subtract": ["$reserved", f"${row}"]}, **settled}
        if await self._update(upload, {"$gt": [f"${row}", None]}, {"$set": fields}, {"$unset": row}):
            return
        # Without a row a complete file was charged; for an incomplete one, whose size is 0, nothing was reserved.
        unsettled = {"$and": [{"$lte": [f"${row}", None]}, {"$lte": [f"$settled.{upload.upload_id}", None]}]}
        changes = {"$set": {"used": {"$subtract": ["$used", upload.size]}, **settled}}
        if not await self._update(upload, unsettled, changes) and await self._create(upload.tenant_id):
            await self._update(upload, unsettled, changes)

    async def usage(self, tenant_id: str) -> Usage:
        """The bytes used and reserved, and the number of damaged files; one query, which costs less than two."""
        ledger = [{"$match": {"tenant_id": tenant_id}}, {"$project": {"used": 1, "reserved": 1}}]
        stages: list[Mapping[str, Any]] = [
            {"$match": {"tenant_id": tenant_id, "damage": {"$gt": ""}, **STORED}},
            {"$count": "damaged"},
            {"$unionWith": {"coll": self._quotas.name, "pipeline": ledger}},
        ]
        found: Document = {}
        for row in await self._uploads.aggregate(stages).to_list(2):
            found |= row
        return Usage(found.get("used", 0), found.get("reserved", 0), found.get("damaged", 0))

    async def delete_settled(self) -> None:
        """Delete, for all tenants, the old ids of settled uploads of which no record is left."""
        cursor = self._quotas.find({"settled": {"$ne": {}}}, {"tenant_id": 1, "settled": 1, "now": "$$NOW"})
        async for document in cursor:
            tenant_id, rows = document["tenant_id"], list(document["settled"].items())
            latest = document["now"] - SETTLED_AGE
            surplus = len(rows) - SETTLED
            old = [upload_id for number, (upload_id, at) in enumerate(rows) if at < latest or number < surplus]
            if unneeded := await self._without_record(tenant_id, old):
                await self._quotas.update_one({"tenant_id": tenant_id}, {"$unset": dict.fromkeys(unneeded, "")})

    async def forget_tenant(self, tenant_id: str) -> None:
        await self._quotas.delete_many({"tenant_id": tenant_id})

    async def tenants(self) -> Sequence[str]:
        with long_timeout():
            return sorted({*await self._quotas.distinct("tenant_id"), *await self._uploads.distinct("tenant_id")})

    async def lease_due(self, age: int) -> str | None:
        """A tenant whose ledger was not compared for `age` seconds; no other replica gets it in the next `age`."""
        document = await self._quotas.find_one_and_update(
            {"$expr": older_than("compared_at", age)}, [{"$set": {"compared_at": NOW}}], {"tenant_id": True}
        )
        return document["tenant_id"] if document else None

    async def snapshot_read(self, tenant_id: str) -> tuple[Ledger, Sequence[Upload]]:
        """A ledger and its records from one snapshot, so that a concurrent request causes no drift."""
        with long_timeout():
            async with await self._client.start_session(snapshot=True) as session:
                document = await self._quotas.find_one({"tenant_id": tenant_id}, session=session) or EMPTY
                fields = {"_id": False, **dict.fromkeys(_FIELDS, True)}
                records = await self._uploads.find({"tenant_id": tenant_id}, fields, session=session).to_list(None)
        uploads = [Upload(tenant_id, **{**record, "status": Status(record["status"])}) for record in records]
        ledger = Ledger(document["used"], document["reserved"], document["holds"], frozenset(document["settled"]))
        return ledger, uploads

    async def correct(self, tenant_id: str, actual: Ledger, expected: Ledger) -> bool:
        """Change the ledger if it is still `actual`."""
        await self._create(tenant_id)
        result = await self._quotas.update_one(
            {"tenant_id": tenant_id, "used": actual.used, "reserved": actual.reserved, "holds": dict(actual.holds)},
            {"$set": {"used": expected.used, "reserved": expected.reserved, "holds": dict(expected.holds)}},
        )
        return result.matched_count == 1

    async def _without_record(self, tenant_id: str, upload_ids: Sequence[str]) -> list[str]:
        """The rows of those settled uploads that have no record."""
        if not upload_ids:
            return []
        query: Document = {"tenant_id": tenant_id, "upload_id": {"$in": list(upload_ids)}}
        recorded = {document["upload_id"] async for document in self._uploads.find(query, {"upload_id": 1})}
        return [f"settled.{upload_id}" for upload_id in upload_ids if upload_id not in recorded]

    async def _create(self, tenant_id: str) -> bool:
        """Create the tenant's ledger; False if there is one."""
        # Two concurrent calls create one document: the server repeats an upsert by a unique key itself.
        result = await self._quotas.update_one({"tenant_id": tenant_id}, {"$setOnInsert": EMPTY}, upsert=True)
        return result.upserted_id is not None

    async def _update(self, upload: Upload, condition: dict[str, Any], *stages: dict[str, Any]) -> bool:
        result = await self._quotas.update_one({"tenant_id": upload.tenant_id, "$expr": condition}, list(stages))
        return result.matched_count == 1
