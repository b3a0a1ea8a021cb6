"""The versions of a tenant for retention, and which tenants are due.

`retention_runs` has a document for each tenant: its run is due work, on each day.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter

from pydantic import TypeAdapter

from catalog_service.retention.plan import StoredVersion
from common.mongo import Document, MongoDatabase
from common.work import NOW, WorkQueue

BATCH = 1000  # versions read at once, because reading them takes the event loop's time
PAUSE = 60  # seconds after which another replica continues a run, or a failed one is tried again
_TOMORROW = {"$dateAdd": {"startDate": {"$dateTrunc": {"date": NOW, "unit": "day"}}, "unit": "day", "amount": 1}}
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
    """Reads versions, and makes runs of tenants due."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._versions = database["versions"]
        self._policies = database["release_policies"]
        self._runs = database["retention_runs"]
        tenant: Callable[[Document], str] = itemgetter("tenant_id")
        self.queue = WorkQueue(
            self._runs, "retention", tenant, lease_seconds=PAUSE, first_pause=PAUSE, longest_pause=PAUSE
        )

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

    async def add_tenants(self) -> None:
        """Let each tenant with rules for which there is no run yet have its first one tomorrow."""
        run = {"_id": False, "tenant_id": True, "work.retention": {"due": _TOMORROW, "since": _TOMORROW}}
        into_runs = {"into": self._runs.name, "on": "tenant_id", "whenMatched": "keepExisting"}
        stages: list[Document] = [{"$match": {"retention.0": {"$exists": True}}}, {"$project": run}]
        await self._policies.aggregate([*stages, {"$merge": into_runs}]).to_list(None)
