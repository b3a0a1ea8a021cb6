"""Inspections in the collection `uploads`.

`inspection` is the state. `inspecting_until` is the lease of the process that reads the file, by the clock of the
database. `inspection_attempt` counts the leases, `inspected` has the findings, and
`inspection_reason` is why there are none. `verification` is the version of the verdict about the signatures.
"""

from typing import Any

from pymongo import ASCENDING

from common.mongo import Document, MongoDatabase
from upload_service.inspection.model import Findings, Inspection, InspectionLease, Reason, State
from upload_service.store import NOW, STORED, UploadRecords, from_now, record_key, to_upload

LEASE_SECONDS = 30  # without renewal until another replica may inspect the file

_FREE = {"$lte": [{"$ifNull": ["$inspecting_until", 0]}, NOW]}  # A number is before any date.
_DUE: Document = {"inspection": State.PENDING, **STORED, "$expr": _FREE}


class MongoInspectionStore(UploadRecords):
    """Methods that take an `InspectionLease` do nothing when another process has the lease.

    `verification` is the current version of verdicts about signatures.
    """

    def __init__(self, database: MongoDatabase, verification: str) -> None:
        super().__init__(database)
        self._verification = verification

    async def find(self, tenant_id: str, server_filename: str) -> Inspection | None:
        """The inspection of a file, which is due from now on if there was none or it is out of date.

        None without a file.
        """
        is_done, is_current = {"$eq": ["$inspection", State.DONE]}, {"$eq": ["$verification", self._verification]}
        is_old = {"$and": [is_done, {"$not": is_current}]}
        document = await self._find_and_set(
            {"tenant_id": tenant_id, "server_filename": server_filename, **STORED},
            {
                "inspection": {"$cond": [is_old, State.PENDING, {"$ifNull": ["$inspection", State.PENDING]}]},
                "inspection_attempt": {"$cond": [is_old, 0, {"$ifNull": ["$inspection_attempt", 0]}]},
            },
        )
        if document is None:
            return None
        findings = Findings.parse(document["inspected"]) if document.get("inspected") else Findings()
        state, reason = State(document["inspection"]), document.get("inspection_reason", "")
        return Inspection(server_filename, state, reason, findings)

    async def waiting_tenants(self) -> list[str]:
        """The tenants with a file that is due, sorted."""
        stages = [{"$match": _DUE}, {"$group": {"_id": "$tenant_id"}}, {"$sort": {"_id": ASCENDING}}]
        return [tenant["_id"] async for tenant in self._uploads.aggregate(stages)]

    async def acquire_lease(self, tenant_id: str, server_filename: str = "") -> InspectionLease | None:
        """Lease this file, or the tenant's oldest one, if it is due."""
        name = {"server_filename": server_filename} if server_filename else {}
        attempt = {"$add": [{"$ifNull": ["$inspection_attempt", 0]}, 1]}
        document = await self._find_and_set(
            {"tenant_id": tenant_id, **name, **_DUE},
            {"inspecting_until": from_now(LEASE_SECONDS), "inspection_attempt": attempt},
            oldest="updated_at",
        )
        return InspectionLease(to_upload(document), document["inspection_attempt"]) if document else None

    async def renew(self, lease: InspectionLease) -> bool:
        """Extend the lease; False if it has ended."""
        return await self._update(lease, {"inspecting_until": from_now(LEASE_SECONDS)})

    async def release(self, lease: InspectionLease, pause: float = 0, *, counts: bool = False) -> None:
        """Make the file due again after a pause in seconds. The attempt counts only if `counts`."""
        attempt = lease.attempt if counts else lease.attempt - 1
        await self._update(lease, {"inspecting_until": from_now(pause), "inspection_attempt": attempt})

    async def mark_done(self, lease: InspectionLease, findings: Findings) -> None:
        fields: Document = {"inspection": State.DONE, "inspected": {"$literal": findings.to_document()}}
        if findings.signature:
            signature = {"$literal": findings.signature.to_document()}
            at = {"at": {"$dateToString": {"date": NOW, "format": "%Y-%m-%dT%H:%M:%S.%L+00:00"}}}
            changed = {"signature": {"$mergeObjects": [signature, at]}}
            fields["inspected"] = {"$mergeObjects": [fields["inspected"], changed]}
        verification = {"$literal": self._verification}
        await self._update(lease, {**fields, "verification": verification, "inspecting_until": "$$REMOVE"})

    async def mark_failed(self, lease: InspectionLease, reason: Reason) -> None:
        fields = {"inspection": State.FAILED, "inspection_reason": reason}
        await self._update(lease, {**fields, "inspecting_until": "$$REMOVE"})

    async def _update(self, lease: InspectionLease, fields: dict[str, Any]) -> bool:
        is_held = {"inspection": State.PENDING, "inspection_attempt": lease.attempt}
        return await self._set({**record_key(lease.upload), **is_held}, fields)
