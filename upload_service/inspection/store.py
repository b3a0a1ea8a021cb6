"""Inspections in the collection `uploads`.

A file to be inspected has the work `inspect`. `inspection` is the state afterwards, `inspected` has the findings, and
`inspection_reason` is why there are none. `verification` is the version of the verdict about the signatures.
"""

from common.mongo import Document, MongoDatabase
from common.work import Lease, WorkQueue, due_now
from upload_service.inspection.model import Findings, Inspection, Reason, State
from upload_service.model import Upload
from upload_service.store import INSPECT, NOW, STORED, UploadRecords, to_upload

ERROR_PAUSE = 120  # seconds until a file is tried again


class MongoInspectionStore(UploadRecords):
    """The queue of files to inspect, and their findings.

    `verification` is the current version of verdicts about signatures.
    """

    def __init__(self, database: MongoDatabase, verification: str) -> None:
        super().__init__(database)
        self._verification = verification
        self.queue = WorkQueue(
            self._uploads, INSPECT, to_upload, condition=STORED, first_pause=ERROR_PAUSE, longest_pause=ERROR_PAUSE
        )

    async def find(self, tenant_id: str, server_filename: str) -> Inspection | None:
        """The inspection of a file, which is due from now on if there was none or it is out of date.

        None without a file.
        """
        query = {"tenant_id": tenant_id, "server_filename": server_filename, **STORED}
        document = await self._uploads.find_one(query)
        if document is None:
            return None
        is_waiting = INSPECT in document.get("work", {})
        state = State.PENDING if is_waiting else State(document.get("inspection", State.PENDING))
        if state is State.DONE and document["verification"] != self._verification:
            state = State.PENDING
        if state is State.PENDING and not is_waiting:
            same = {"inspection": document.get("inspection"), f"work.{INSPECT}": {"$exists": False}}
            await self._set({**query, **same}, due_now(INSPECT))
        findings = Findings.parse(document["inspected"]) if document.get("inspected") else Findings()
        return Inspection(server_filename, state, document.get("inspection_reason", ""), findings)

    async def mark_done(self, lease: Lease[Upload], findings: Findings) -> bool:
        """Store the findings; False without the lease."""
        inspected: Document = {"$literal": findings.to_document()}
        if findings.signature:
            signature = {"$literal": findings.signature.to_document()}
            at = {"at": {"$dateToString": {"date": NOW, "format": "%Y-%m-%dT%H:%M:%S.%L+00:00"}}}
            inspected = {"$mergeObjects": [inspected, {"signature": {"$mergeObjects": [signature, at]}}]}
        verification = {"$literal": self._verification}
        fields = {"inspection": State.DONE, "inspected": inspected, "verification": verification}
        return await self.queue.finish(lease, fields)

    async def mark_failed(self, lease: Lease[Upload], reason: Reason) -> bool:
        return await self.queue.finish(lease, {"inspection": State.FAILED, "inspection_reason": reason})
