"""Ledgers and their records, read from one snapshot of MongoDB so that a concurrent request causes no drift."""

from collections.abc import Sequence

from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Status, Upload
from upload_service.quota.model import Ledger
from upload_service.quota.store import EMPTY
from upload_service.store import NOW, older_than

_FIELDS = ("file_id", "upload_id", "total", "offset", "status", "size")


class MongoLedgerStore:
    """The ledgers and upload records of all tenants."""

    def __init__(self, database: MongoDatabase) -> None:
        self._client = database.client
        self._quotas = database["quotas"]
        self._uploads = database["uploads"]

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
        """A ledger and its records, both as they were at one moment."""
        with long_timeout():
            async with await self._client.start_session(snapshot=True) as session:
                document = await self._quotas.find_one({"tenant_id": tenant_id}, session=session) or EMPTY
                cursor = self._uploads.find({"tenant_id": tenant_id}, dict.fromkeys(_FIELDS, True), session=session)
                uploads = [_to_upload(tenant_id, record) async for record in cursor]
        ledger = Ledger(document["used"], document["reserved"], document["holds"], frozenset(document["settled"]))
        return ledger, uploads

    async def correct(self, tenant_id: str, actual: Ledger, expected: Ledger) -> bool:
        """Change the ledger if it is still `actual`."""
        await self._quotas.update_one({"tenant_id": tenant_id}, {"$setOnInsert": EMPTY}, upsert=True)
        result = await self._quotas.update_one(
            {"tenant_id": tenant_id, "used": actual.used, "reserved": actual.reserved, "holds": dict(actual.holds)},
            {"$set": {"used": expected.used, "reserved": expected.reserved, "holds": dict(expected.holds)}},
        )
        return result.matched_count == 1


def _to_upload(tenant_id: str, document: Document) -> Upload:
    return Upload(
        tenant_id=tenant_id,
        file_id=document["file_id"],
        upload_id=document["upload_id"],
        total=document["total"],
        offset=document["offset"],
        status=Status(document["status"]),
        size=document.get("size", 0),
    )
