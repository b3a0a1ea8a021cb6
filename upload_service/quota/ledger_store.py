"""Ledgers beside their records, read from one snapshot of MongoDB so that a request under way is no drift."""

from collections.abc import Sequence

from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Status, Upload
from upload_service.quota.reconciliation import Ledger

_FIELDS = ("file_id", "upload_id", "total", "offset", "status", "size")
_NONE: Document = {"used": 0, "reserved": 0, "holds": {}, "settled": {}}


class MongoLedgerStore:
    """Satisfies `upload_service.quota.reconciliation.LedgerStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._client = database.client
        self._quotas = database["quotas"]
        self._uploads = database["uploads"]

    async def tenants(self) -> Sequence[str]:
        with long_timeout():
            return sorted({*await self._quotas.distinct("tenant_id"), *await self._uploads.distinct("tenant_id")})

    async def lease_due(self, age: int) -> str | None:
        before = {"$subtract": ["$$NOW", age * 1000]}
        document = await self._quotas.find_one_and_update(
            {"$expr": {"$lt": ["$compared_at", before]}},  # one never compared is lower than any date
            [{"$set": {"compared_at": "$$NOW"}}],
            {"tenant_id": True},
        )
        return document["tenant_id"] if document else None

    async def snapshot_read(self, tenant_id: str) -> tuple[Ledger, Sequence[Upload]]:
        with long_timeout():
            async with await self._client.start_session(snapshot=True) as session:
                ledger = await self._quotas.find_one({"tenant_id": tenant_id}, session=session)
                found = self._uploads.find({"tenant_id": tenant_id}, dict.fromkeys(_FIELDS, True), session=session)
                uploads = [_upload(tenant_id, document) async for document in found]
        return _ledger(ledger or _NONE), uploads

    async def correct(self, tenant_id: str, seen: Ledger, right: Ledger) -> bool:
        await self._quotas.update_one({"tenant_id": tenant_id}, {"$setOnInsert": _NONE}, upsert=True)
        result = await self._quotas.update_one(
            {"tenant_id": tenant_id, "used": seen.used, "reserved": seen.reserved, "holds": dict(seen.holds)},
            {"$set": {"used": right.used, "reserved": right.reserved, "holds": dict(right.holds)}},
        )
        return result.matched_count == 1


def _ledger(document: Document) -> Ledger:
    return Ledger(document["used"], document["reserved"], document["holds"], frozenset(document["settled"]))


def _upload(tenant_id: str, document: Document) -> Upload:
    return Upload(
        tenant_id=tenant_id,
        file_id=document["file_id"],
        upload_id=document["upload_id"],
        total=document["total"],
        offset=document["offset"],
        status=Status(document["status"]),
        size=document.get("size", 0),
    )
