"""The versions of a tenant for retention, and which tenants are due.

`retention_runs` has a document for each tenant: the day of its last run, and the lease of the replica that runs it.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from pydantic import TypeAdapter
from pymongo import ReturnDocument

from catalog_service.retention.plan import StoredVersion
from common.mongo import Document, MongoDatabase

BATCH = 1000  # versions read at once, because reading them takes the event loop's time
LEASE = 60_000  # milliseconds without renewal until another replica may take over
_TODAY = {"$dateTrunc": {"date": "$$NOW", "unit": "day"}}
_PROJECTION = {
    "_id": False,
    **dict.fromkeys(("uid", "package_id", "version", "channel", "architecture", "size", "stage"), True),
    "published_at": "$changed_at",
    "is_external": {"$gt": ["$installer_url", ""]},
    "dependencies": "$dependencies.packages",
    "is_pinned": "$release.pinned",
    "fence": "$release.fence",
    "retired_at": "$release.retired_at",
}
_VERSIONS = TypeAdapter(list[StoredVersion])


class MongoRetentionStore:
    """Reads versions, and leases the runs of tenants."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._versions = database["versions"]
        self._policies = database["release_policies"]
        self._runs = database["retention_runs"]

    async def now(self) -> datetime:
        """The clock of the database."""
        now: datetime = (await self._database.command("hello", codec_options=self._database.codec_options))["localTime"]
        return now

    async def versions(self, tenant_id: str) -> Sequence[StoredVersion]:
        cursor = self._versions.find({"tenant_id": tenant_id, "state": "active"}, _PROJECTION, batch_size=BATCH)
        versions: list[StoredVersion] = []
        while documents := await cursor.to_list(BATCH):
            versions += _VERSIONS.validate_python(documents)
        return versions

    async def acquire_run(self) -> tuple[str, str] | None:
        """Lease a tenant that had no run today; returns it and the token of the lease. A new tenant is due tomorrow."""
        async for policy in self._policies.find({"retention.0": {"$exists": True}}, {"tenant_id": True}):
            await self._runs.update_one(
                {"tenant_id": policy["tenant_id"]}, [{"$set": {"day": {"$ifNull": ["$day", _TODAY]}}}], upsert=True
            )
        is_free = {"$lt": [{"$ifNull": ["$until", 0]}, "$$NOW"]}
        token = uuid4().hex
        document = await self._runs.find_one_and_update(
            {"$expr": {"$and": [{"$lt": ["$day", _TODAY]}, is_free]}},
            [{"$set": {"token": token, "until": {"$add": ["$$NOW", LEASE]}}}],
            return_document=ReturnDocument.AFTER,
        )
        return (document["tenant_id"], token) if document else None

    async def renew_run(self, tenant_id: str, token: str) -> bool:
        """Renew a lease; False if another replica has it."""
        return await self._change_run(tenant_id, token, {"until": {"$add": ["$$NOW", LEASE]}})

    async def end_run(self, tenant_id: str, token: str, day: datetime) -> None:
        """Record that the run of a day is done."""
        await self._change_run(tenant_id, token, {"day": day, "until": "$$REMOVE", "token": "$$REMOVE"})

    async def _change_run(self, tenant_id: str, token: str, fields: Document) -> bool:
        query = {"tenant_id": tenant_id, "token": token}
        return (await self._runs.update_one(query, [{"$set": fields}])).matched_count == 1
