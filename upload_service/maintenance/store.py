"""The collection `uploads` as the care of stored files sees it: what to read again, what is damaged, what is known.

A record's `checked_at` says when its file was last read to the end, `checking_until` is the lease of whoever reads it,
and `damaged_at` says since when it has its `damage`. All by the database's clock.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from pymongo import ASCENDING, ReturnDocument

from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.store import to_upload

LEASE = 3_600_000  # milliseconds; a reading that takes longer may be done twice
DAMAGED_AGAIN = 3600  # seconds until a damaged file is read again, which an operator may have restored
PAGE = 100  # records

_NOW = "$$NOW"
_KEPT: Document = {"status": {"$in": [Status.COMPLETE, Status.LINKED]}}


@dataclass(frozen=True)
class DamagedInstaller:
    """A file that is not what was uploaded. `version_uid` is "" where nothing is linked to it."""

    server_filename: str
    version_uid: str
    damage: Damage
    found_at: datetime


class MongoScrubStore:
    """Satisfies `upload_service.maintenance.scrub.ScrubStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def lease_due(self, interval: int) -> Upload | None:
        return await self._take({}, interval) or await self._take({"damage": {"$gt": ""}}, DAMAGED_AGAIN)

    async def mark_intact(self, upload: Upload) -> bool:
        return await self._found(upload, {"damage": Damage.NONE, "damaged_at": "$$REMOVE"})

    async def mark_damaged(self, upload: Upload, damage: Damage) -> bool:
        since = {"$cond": [{"$gt": ["$damage", Damage.NONE]}, {"$ifNull": ["$damaged_at", _NOW]}, _NOW]}
        return await self._found(upload, {"damage": damage, "damaged_at": since})

    async def complete_uploads(self, tenant_id: str | None) -> AsyncIterator[Upload]:
        """All complete files, of one tenant or of all."""
        last: Document = {}
        while True:
            found = self._uploads.find({**_of(tenant_id), **_KEPT, **last}).sort("_id", ASCENDING).limit(PAGE)
            page = await found.to_list(None)
            for document in page:
                yield to_upload(document)
            if len(page) < PAGE:
                return
            last = {"_id": {"$gt": page[-1]["_id"]}}

    async def total_size(self, tenant_id: str | None) -> int:
        """The bytes of what `kept` gives."""
        stages: list[Mapping[str, Any]] = [
            {"$match": {**_of(tenant_id), **_KEPT}},
            {"$group": {"_id": None, "bytes": {"$sum": "$size"}}},
        ]
        with long_timeout():
            found = [row async for row in self._uploads.aggregate(stages)]
        return found[0]["bytes"] if found else 0

    async def damaged_installers(self, tenant_id: str) -> list[DamagedInstaller]:
        """A tenant's damaged files, the one found first at the top."""
        found = self._uploads.find({"tenant_id": tenant_id, "damage": {"$gt": ""}, **_KEPT})
        listed = [
            DamagedInstaller(
                document["server_filename"],
                document.get("version_uid", ""),
                Damage(document["damage"]),
                document.get("damaged_at", document["updated_at"]),
            )
            async for document in found
        ]
        return sorted(listed, key=lambda installer: (installer.found_at, installer.server_filename))

    async def count_damaged(self, tenant_id: str) -> int:
        return await self._uploads.count_documents({"tenant_id": tenant_id, "damage": {"$gt": ""}, **_KEPT})

    async def _take(self, condition: Mapping[str, Any], age: int) -> Upload | None:
        """The file whose last reading is the longest ago, and longer than `age` seconds, for this process alone."""
        before = {"$lt": ["$checked_at", {"$subtract": [_NOW, age * 1000]}]}  # a file never read is before any date
        free = {"$lt": ["$checking_until", _NOW]}
        document = await self._uploads.find_one_and_update(
            {**_KEPT, **condition, "$expr": {"$and": [before, free]}},
            [{"$set": {"checking_until": {"$add": [_NOW, LEASE]}}}],
            sort=[("checked_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return to_upload(document) if document else None

    async def _found(self, upload: Upload, fields: Mapping[str, Any]) -> bool:
        """Note what was found, unless the file was moved or removed while it was read."""
        where = {"tenant_id": upload.tenant_id, "upload_id": upload.upload_id, "home": upload.storage, **_KEPT}
        seen = {**fields, "checked_at": _NOW, "checking_until": "$$REMOVE"}
        return (await self._uploads.update_one(where, [{"$set": seen}])).matched_count == 1


class MongoFileIndex:
    """Satisfies `orphans.KnownStore` and `ownership.IdentityStore`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]
        self._storage = database["storage"]

    async def known_names(self, tenant_id: str, server_filenames: Collection[str]) -> Set[str]:
        wanted = {"tenant_id": tenant_id, "server_filename": {"$in": list(server_filenames)}}
        return {document["server_filename"] async for document in self._uploads.find(wanted, {"server_filename": 1})}

    async def find_uploads(self, tenant_id: str, upload_ids: Collection[str]) -> Sequence[Upload]:
        wanted: Document = {"tenant_id": tenant_id, "upload_id": {"$in": list(upload_ids)}}
        return [to_upload(document) async for document in self._uploads.find(wanted)]

    async def has_files_at(self, home: StorageKind) -> bool:
        return await self._uploads.find_one({**_KEPT, "home": home}, {"_id": True}) is not None

    async def storage_id(self) -> str | None:
        document = await self._storage.find_one({"_id": "identity"})
        return document["storage_id"] if document else None

    async def create_storage_id(self) -> str:
        """The storage's id, made where there is none."""
        document = await self._storage.find_one_and_update(
            {"_id": "identity"},
            {"$setOnInsert": {"storage_id": uuid4().hex}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        storage_id: str = document["storage_id"]
        return storage_id


def _of(tenant_id: str | None) -> Document:
    return {} if tenant_id is None else {"tenant_id": tenant_id}
