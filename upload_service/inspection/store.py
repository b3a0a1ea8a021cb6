"""Inspections in the collection `uploads`.

`inspection` is the state of one; a record without it is of a time before there were any.
`inspecting_until` is the lease of whoever reads the file, `inspection_attempt` counts the leases, `inspected` is what
was found and `inspection_reason` why nothing was. All by the database's clock.
"""

from typing import Any

from pymongo import ASCENDING, ReturnDocument

from common.mongo import Document, MongoDatabase
from upload_service.inspection.findings import Findings
from upload_service.inspection.inspector import Inspection, InspectionLease, State
from upload_service.inspection.process import Reason
from upload_service.model import Status
from upload_service.store import to_upload

LEASE = 120_000  # milliseconds; a file may have to be fetched before it is read
POSTPONED = 30_000  # milliseconds

_NOW = "$$NOW"
_KEPT: Document = {"status": {"$in": [Status.COMPLETE, Status.LINKED]}}
_FREE = {"$lt": [{"$ifNull": ["$inspecting_until", 0]}, _NOW]}  # A number is before any date.
_DUE: Document = {"inspection": State.WAITING, **_KEPT, "$expr": _FREE}


class MongoInspectionStore:
    """Satisfies `upload_service.inspection.inspector.InspectionStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def find(self, tenant_id: str, server_filename: str) -> Inspection | None:
        document = await self._uploads.find_one_and_update(
            {"tenant_id": tenant_id, "server_filename": server_filename, **_KEPT},
            [{"$set": {"inspection": {"$ifNull": ["$inspection", State.WAITING]}}}],
            return_document=ReturnDocument.AFTER,
        )
        if document is None:
            return None
        found = document.get("inspected")
        return Inspection(
            server_filename,
            State(document["inspection"]),
            document.get("inspection_reason", ""),
            Findings.parse(found) if found else Findings(),
        )

    async def waiting_tenants(self) -> list[str]:
        tenants = self._uploads.aggregate(
            [{"$match": _DUE}, {"$group": {"_id": "$tenant_id"}}, {"$sort": {"_id": ASCENDING}}]
        )
        return [tenant["_id"] async for tenant in tenants]

    async def acquire_lease(self, tenant_id: str, server_filename: str = "") -> InspectionLease | None:
        named = {"server_filename": server_filename} if server_filename else {}
        document = await self._uploads.find_one_and_update(
            {"tenant_id": tenant_id, **named, **_DUE},
            [
                {
                    "$set": {
                        "inspecting_until": {"$add": [_NOW, LEASE]},
                        "inspection_attempt": {"$add": [{"$ifNull": ["$inspection_attempt", 0]}, 1]},
                    }
                }
            ],
            sort=[("updated_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return InspectionLease(to_upload(document), document["inspection_attempt"]) if document else None

    async def postpone(self, taken: InspectionLease) -> None:
        later = {"$add": [_NOW, POSTPONED]}
        await self._say(taken, {"inspecting_until": later, "inspection_attempt": taken.attempt - 1})

    async def mark_done(self, taken: InspectionLease, findings: Findings) -> None:
        said = {"inspection": State.DONE, "inspected": {"$literal": findings.to_document()}}
        await self._say(taken, {**said, "inspecting_until": "$$REMOVE"})

    async def mark_failed(self, taken: InspectionLease, reason: Reason) -> None:
        said = {"inspection": State.FAILED, "inspection_reason": reason}
        await self._say(taken, {**said, "inspecting_until": "$$REMOVE"})

    async def _say(self, taken: InspectionLease, fields: dict[str, Any]) -> None:
        upload = taken.upload
        held = {"inspection": State.WAITING, "inspection_attempt": taken.attempt}
        named = {"tenant_id": upload.tenant_id, "upload_id": upload.upload_id}
        await self._uploads.update_one({**named, **held}, [{"$set": fields}])
