"""Scans in the collection `uploads`, and files that release control withholds.

A file to be scanned has the work `scan`. `scan` is the verdict, which counts until there is a new one, or a failure of
the first scan. `withheld` is the state that the catalog sent last, and `withheld_fence` counts its changes.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from pymongo import UpdateOne

from common.mongo import Document, MongoDatabase, long_timeout
from common.tenants import ALL_TENANTS
from common.work import Lease, WorkQueue, due_now, is_waiting
from upload_service.model import Upload
from upload_service.scanning.model import Engine, ScanState, Verdict
from upload_service.store import NOW, SCAN, STORED, UploadRecords, to_upload

FIRST_PAUSE, LONGEST_PAUSE = 30, 3600  # seconds until a failed scan is repeated
_VERDICTS = [ScanState.CLEAN, ScanState.INFECTED, ScanState.TOO_LARGE]


@dataclass(frozen=True)
class Withholding:
    """Whether the file of a version is withheld; only a newer `fence` than the stored one has an effect."""

    version_uid: str
    is_withheld: bool
    fence: int


class MongoScanStore(UploadRecords):
    """The queue of files to scan, their verdicts, and files that are withheld."""

    def __init__(self, database: MongoDatabase) -> None:
        super().__init__(database)
        self.queue = WorkQueue(
            self._uploads, SCAN, to_upload, condition=STORED, first_pause=FIRST_PAUSE, longest_pause=LONGEST_PAUSE
        )

    async def mark_scanned(self, lease: Lease[Upload], verdict: Verdict, engine: Engine) -> bool:
        """Store a verdict; False without the lease. An infected file stays infected if it is too large now."""
        scan = _scan(lease.record, verdict.state, verdict.reason, engine)
        if verdict.state is ScanState.TOO_LARGE:
            scan = {"$cond": [{"$eq": ["$scan.state", ScanState.INFECTED]}, "$scan", scan]}
        return await self.queue.finish(lease, {"scan": scan})

    async def mark_failed(self, lease: Lease[Upload], reason: str, engine: Engine) -> bool:
        """Make the file due again later; an earlier verdict stays. False without the lease."""
        failed = _scan(lease.record, ScanState.FAILED, reason, engine)
        has_verdict = {"$in": [{"$ifNull": ["$scan.state", ScanState.FAILED]}, _VERDICTS]}
        return await self.queue.retry(lease, {"scan": {"$cond": [has_verdict, "$scan", failed]}})

    async def make_due(self, tenant_id: str | None) -> int:
        """Make all files of a tenant, or of all, due; a scan that runs now has no effect. Returns their number."""
        query: Document = {**({} if tenant_id is None else {"tenant_id": tenant_id}), **STORED}
        with long_timeout():
            return (await self._uploads.update_many(query, [{"$set": due_now(SCAN)}])).matched_count

    async def make_unscanned_due(self, tenant_id: str, version_uids: Sequence[str]) -> None:
        """Make the files of these versions due that were never scanned."""
        never = {"scan": {"$exists": False}, "$nor": [is_waiting(SCAN)]}
        query = {"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}, **never, **STORED}
        await self._uploads.update_many(query, [{"$set": due_now(SCAN)}])

    async def find(self, tenant_id: str, version_uids: Sequence[str]) -> AsyncIterator[tuple[Upload, Document]]:
        """The files of these versions, each with its scan; {} without one."""
        query = {"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}, **STORED}
        async for document in self._uploads.find(query):
            yield to_upload(document), document.get("scan", {})

    async def find_scan(self, tenant_id: str, server_filename: str) -> Document:
        """The scan of a stored file; {} without one."""
        query = {"tenant_id": tenant_id, "server_filename": server_filename, **STORED}
        document: Document = await self._uploads.find_one(query, {"scan": True}) or {}
        return document.get("scan") or {}

    async def find_infected(self, tenant_id: str) -> list[tuple[str, str]]:
        """The versions of a tenant, or of `ALL_TENANTS`, whose file is infected: tenants and uids, sorted."""
        tenant: Document | str = {"$gt": ""} if tenant_id == ALL_TENANTS else tenant_id
        query = {"tenant_id": tenant, "scan.state": ScanState.INFECTED, "version_uid": {"$gt": ""}, **STORED}
        fields = {"tenant_id": True, "version_uid": True}
        found = self._uploads.find(query, fields, comment=ALL_TENANTS if tenant_id == ALL_TENANTS else None)
        return sorted([(document["tenant_id"], document["version_uid"]) async for document in found])

    async def withhold(self, tenant_id: str, changes: Sequence[Withholding]) -> None:
        """Withhold the files of these versions, or stop withholding them; a repeated change has no effect."""
        updates = [
            UpdateOne(
                {
                    "tenant_id": tenant_id,
                    "version_uid": change.version_uid,
                    "$expr": {"$lt": [{"$ifNull": ["$withheld_fence", -1]}, change.fence]},
                },
                {"$set": {"withheld": change.is_withheld, "withheld_fence": change.fence}},
            )
            for change in changes
        ]
        if updates:
            await self._uploads.bulk_write(updates, ordered=False)


def _scan(upload: Upload, state: ScanState, reason: str, engine: Engine) -> Document:
    texts = {"reason": reason, "engine": engine.name, "signatures": engine.signatures}
    literals: Document = {name: {"$literal": text} for name, text in texts.items()}
    return {"state": state, **literals, "sha256": upload.sha256, "at": NOW}
