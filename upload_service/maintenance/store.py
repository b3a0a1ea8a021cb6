"""The collection `uploads` for the scrub: files to read, and damaged files.

`checked_at` is when a file was last read to the end. `checking_until` is the lease of its reader. `damaged_at` is when
its `damage` was found. All are by the clock of the database.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import ASCENDING

from common.mongo import Document
from upload_service.model import Damage, Upload
from upload_service.store import (
    NOW,
    STORED,
    UploadRecords,
    from_now,
    older_than,
    record_key,
    to_upload,
    to_upload_or_none,
)

LEASE_SECONDS = 3600  # A file that takes longer may be read twice.
DAMAGED_AGAIN_SECONDS = 3600  # until a damaged file, which an operator may have restored, is read again
PAGE = 100  # records


@dataclass(frozen=True)
class DamagedInstaller:
    """A file that is not what was uploaded. `version_uid` is "" if no version is linked to it."""

    server_filename: str
    version_uid: str
    damage: Damage
    found_at: datetime


class MongoScrubStore(UploadRecords):
    """Leases files to read, marks damaged ones, and lists both. A file that has moved meanwhile gets no mark."""

    async def lease_due(self, interval: int) -> Upload | None:
        """A file that was not read for `interval` seconds, for this process alone."""
        return await self._lease({}, interval) or await self._lease({"damage": {"$gt": ""}}, DAMAGED_AGAIN_SECONDS)

    async def mark_intact(self, upload: Upload) -> bool:
        return await self._mark(upload, {"damage": Damage.NONE, "damaged_at": "$$REMOVE"})

    async def mark_damaged(self, upload: Upload, damage: Damage) -> bool:
        since = {"$cond": [{"$gt": ["$damage", Damage.NONE]}, {"$ifNull": ["$damaged_at", NOW]}, NOW]}
        return await self._mark(upload, {"damage": damage, "damaged_at": since})

    async def complete_uploads(self, tenant_id: str | None) -> AsyncIterator[Upload]:
        """All complete files, of one tenant or of all."""
        last: Document = {}
        while True:
            cursor = self._uploads.find({**_of(tenant_id), **STORED, **last}).sort("_id", ASCENDING).limit(PAGE)
            page = await cursor.to_list(None)
            for document in page:
                yield to_upload(document)
            if len(page) < PAGE:
                return
            last = {"_id": {"$gt": page[-1]["_id"]}}

    async def total_size(self, tenant_id: str | None) -> int:
        """The bytes of all complete files, of one tenant or of all."""
        return (await self._totals({**_of(tenant_id), **STORED}))[1]

    async def damaged_installers(self, tenant_id: str) -> list[DamagedInstaller]:
        """A tenant's damaged files, in the order in which they were found."""
        cursor = self._uploads.find({"tenant_id": tenant_id, "damage": {"$gt": ""}, **STORED})
        installers = [
            DamagedInstaller(
                document["server_filename"],
                document.get("version_uid", ""),
                Damage(document["damage"]),
                document.get("damaged_at", document["updated_at"]),
            )
            async for document in cursor
        ]
        return sorted(installers, key=lambda installer: (installer.found_at, installer.server_filename))

    async def _lease(self, condition: Mapping[str, Any], age: int) -> Upload | None:
        """The file that was read the longest ago, and more than `age` seconds ago, for this process alone."""
        is_free = {"$lt": ["$checking_until", NOW]}
        query = {**STORED, **condition, "$expr": {"$and": [older_than("checked_at", age), is_free]}}
        fields = {"checking_until": from_now(LEASE_SECONDS)}
        return to_upload_or_none(await self._find_and_set(query, fields, oldest="checked_at"))

    async def _mark(self, upload: Upload, fields: Mapping[str, Any]) -> bool:
        """Set fields, unless the file was moved or removed while it was read."""
        query = {**record_key(upload), "home": upload.storage, **STORED}
        return await self._set(query, {**fields, "checked_at": NOW, "checking_until": "$$REMOVE"})


def _of(tenant_id: str | None) -> Document:
    return {} if tenant_id is None else {"tenant_id": tenant_id}
