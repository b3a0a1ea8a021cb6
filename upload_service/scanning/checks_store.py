"""Checks of the files of versions, and files that release control withholds, in the collection `uploads`.

`withheld` is the state that the catalog sent last, and `withheld_fence` counts its changes.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from pymongo import UpdateOne

from common.mongo import Document
from upload_service.model import Upload
from upload_service.scanning.model import ScanState
from upload_service.store import STORED, UploadRecords, to_upload


@dataclass(frozen=True)
class Withholding:
    """Whether the file of a version is withheld; only a newer `fence` than the stored one has an effect."""

    version_uid: str
    is_withheld: bool
    fence: int


class MongoCheckStore(UploadRecords):
    """Reads the verdicts about a tenant's files, and withholds files."""

    async def find(self, tenant_id: str, version_uids: Sequence[str]) -> AsyncIterator[tuple[Upload, Document]]:
        """The files of these versions, each with its scan; {} without one."""
        query = {"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}, **STORED}
        async for document in self._uploads.find(query):
            yield to_upload(document), document.get("scan", {})

    async def find_infected(self, tenant_id: str) -> list[str]:
        """The versions whose file is infected, sorted."""
        query = {"tenant_id": tenant_id, "scan.state": ScanState.INFECTED, "version_uid": {"$gt": ""}, **STORED}
        return sorted([document["version_uid"] async for document in self._uploads.find(query, {"version_uid": True})])

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
