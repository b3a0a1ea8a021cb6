"""Scans in the collection `uploads`.

A file with `scan_due` is to be scanned at that time; `scan_since` is when that was asked for. A lease moves `scan_due`
to its end. Its begin and its end count `scan_attempt` up, so that only the last lease has an effect, and only until it
ends. `scan` is the verdict, which counts until there is a new one, or a failure of the first scan. All times are by the
clock of the database.
"""

from collections.abc import Collection, Sequence

from pymongo import ASCENDING, ReturnDocument

from common.mongo import Document, long_timeout
from upload_service.scanning.model import Engine, ScanLease, ScanState, Verdict
from upload_service.store import NOW, STORED, WAITING_FOR_SCAN, UploadRecords, from_now, record_key, to_upload

LEASE_SECONDS = 30  # without renewal until another replica may scan the file
FIRST_PAUSE, LONGEST_PAUSE = 30, 3600  # seconds until a failed scan is repeated
_ORDER = [("tenant_id", ASCENDING), ("scan_due", ASCENDING)]
_ATTEMPTS: Document = {"$ifNull": ["$scan_attempt", 0]}
_DUE_NOW: Document = {"scan_due": NOW, "scan_since": {"$ifNull": ["$scan_since", NOW]}}


class MongoScanStore(UploadRecords):
    """Methods that take a `ScanLease` do nothing after its end, or after another lease of the file."""

    async def acquire_lease(self, after: str, without: Collection[str]) -> ScanLease | None:
        """Lease the file that is due the longest, of the next tenant after this one and none of those `without`."""
        document = await self._uploads.find_one_and_update(
            {
                "tenant_id": {"$gt": after, "$nin": list(without)},
                **WAITING_FOR_SCAN,
                **STORED,
                "$expr": {"$lte": ["$scan_due", NOW]},
            },
            [{"$set": {"scan_due": from_now(LEASE_SECONDS), "scan_attempt": {"$add": [_ATTEMPTS, 1]}}}],
            sort=_ORDER,
            return_document=ReturnDocument.AFTER,
        )
        if document is None:
            return None
        return ScanLease(to_upload(document), document["scan_attempt"], document.get("scan_failures", 0))

    async def renew(self, lease: ScanLease) -> bool:
        """Extend the lease; False if it has ended."""
        return await self._update(lease, {"scan_due": from_now(LEASE_SECONDS)})

    async def release(self, lease: ScanLease) -> None:
        """End the lease, and make the file due at once."""
        await self._update(lease, {**_end_of(lease), "scan_due": NOW})

    async def mark_scanned(self, lease: ScanLease, verdict: Verdict, engine: Engine) -> bool:
        """Store a verdict; False after another lease. An infected file stays infected if it is too large now."""
        scan = _scan(lease, verdict.state, verdict.reason, engine)
        if verdict.state is ScanState.TOO_LARGE:
            scan = {"$cond": [{"$eq": ["$scan.state", ScanState.INFECTED]}, "$scan", scan]}
        return await self._update(lease, {"scan": scan, **dict.fromkeys(_WORK, "$$REMOVE")})

    async def mark_failed(self, lease: ScanLease, reason: str, engine: Engine) -> bool:
        """Make the file due again later; an earlier verdict stays. False after another lease."""
        pause = min(FIRST_PAUSE * 2 ** min(lease.failures, 10), LONGEST_PAUSE)
        failed = _scan(lease, ScanState.FAILED, reason, engine)
        has_verdict = {"$in": [{"$ifNull": ["$scan.state", ScanState.FAILED]}, _VERDICTS]}
        return await self._update(
            lease,
            {
                **_end_of(lease),
                "scan": {"$cond": [has_verdict, "$scan", failed]},
                "scan_due": from_now(pause),
                "scan_failures": lease.failures + 1,
            },
        )

    async def make_due(self, tenant_id: str | None) -> int:
        """Make all files of a tenant, or of all, due; a scan that runs now has no effect. Returns their number."""
        query: Document = {**({} if tenant_id is None else {"tenant_id": tenant_id}), **STORED}
        fields = {**_DUE_NOW, "scan_attempt": {"$add": [_ATTEMPTS, 1]}, "scan_failures": "$$REMOVE"}
        with long_timeout():
            return (await self._uploads.update_many(query, [{"$set": fields}])).matched_count

    async def make_unscanned_due(self, tenant_id: str, version_uids: Sequence[str]) -> None:
        """Make the files of these versions due that were never scanned."""
        never = {"scan": {"$exists": False}, "scan_due": {"$exists": False}}
        query = {"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}, **never, **STORED}
        await self._uploads.update_many(query, [{"$set": _DUE_NOW}])

    async def _update(self, lease: ScanLease, fields: Document) -> bool:
        return await self._set({**record_key(lease.upload), **WAITING_FOR_SCAN, "scan_attempt": lease.attempt}, fields)


_WORK = ("scan_due", "scan_since", "scan_failures")
_VERDICTS = [ScanState.CLEAN, ScanState.INFECTED, ScanState.TOO_LARGE]


def _end_of(lease: ScanLease) -> Document:
    return {"scan_attempt": lease.attempt + 1}  # A late renewal must not extend a lease that has ended.


def _scan(lease: ScanLease, state: ScanState, reason: str, engine: Engine) -> Document:
    texts = {"reason": reason, "engine": engine.name, "signatures": engine.signatures}
    literals: Document = {name: {"$literal": text} for name, text in texts.items()}
    return {"state": state, **literals, "sha256": lease.upload.sha256, "at": NOW}
