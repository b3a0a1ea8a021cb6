"""The collection `uploads` by the place of the files: moves between storages, and the names that have a record.

`home` is the storage of a file. `left` is the previous one, as long as it may still have a copy. `moving_by` and
`moving_until` are the lease of a mover, by the clock of the database.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument

from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Damage, Move, StorageKind, Upload
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

LEASE_SECONDS = 60
SETTLED_SECONDS = 5.0  # without a change, after which a completed file has its final name

_FREE = {"$lte": [{"$ifNull": ["$moving_until", NOW]}, NOW]}


class MongoMoveStore(UploadRecords):
    """Every change is one conditional update that only the last lease holder can make."""

    async def lease_leftover(self, kinds: Iterable[StorageKind], passed_over: Collection[str]) -> Move | None:
        """A moved file that may still have a copy in one of these storages; `passed_over` are upload ids."""
        return await self._lease({"left": {"$in": list(kinds)}, **STORED, "$expr": _FREE}, passed_over)

    async def lease_next(self, kind: StorageKind, passed_over: Collection[str]) -> Move | None:
        """An undamaged file in this storage that was not changed for a while."""
        is_due = {"$and": [_FREE, older_than("updated_at", SETTLED_SECONDS)]}
        query = {**_movable(kind), "left": {"$in": ["", None]}, "$expr": is_due}
        return await self._lease(query, passed_over)

    async def renew(self, move: Move) -> bool:
        """Extend the lease; False if it is another's, or the file is being deleted."""
        return await self._update(move, {"moving_until": from_now(LEASE_SECONDS)}, STORED)

    async def release(self, move: Move) -> None:
        await self._update(move, {"moving_by": "", "moving_until": NOW})

    async def set_storage(self, move: Move, kind: StorageKind) -> bool:
        """Record the file's new storage, and the old one as its previous storage."""
        old = move.upload.storage
        return await self._update(move, {"home": kind, "left": old}, {**STORED, "home": old})

    async def clear_previous(self, move: Move) -> None:
        await self._update(move, {"left": ""})

    async def mark_damaged(self, move: Move, damage: Damage) -> None:
        await self._update(move, {"damage": damage, "damaged_at": NOW}, {"home": move.upload.storage})

    async def find(self, upload: Upload) -> Upload | None:
        return to_upload_or_none(await self._uploads.find_one(record_key(upload)))

    async def remaining(self, kind: StorageKind, passed_over: Collection[str] = ()) -> tuple[int, int]:
        """The number of files in a storage that can be moved, except for these upload ids, and their bytes."""
        return await self._totals({**_movable(kind), "upload_id": {"$nin": list(passed_over)}})

    async def count(self, kind: StorageKind) -> int:
        """The number of files in a storage, damaged ones included."""
        with long_timeout():
            return await self._uploads.count_documents({"home": kind, **STORED})

    async def has_any(self, tenant_id: str, kind: StorageKind) -> bool:
        """Whether a tenant has, or may have, files in a storage."""
        query = {"tenant_id": tenant_id, "$or": [{"home": kind}, {"left": kind}]}
        return await self._uploads.find_one(query, {"_id": 1}) is not None

    async def _lease(self, query: Mapping[str, Any], passed_over: Collection[str]) -> Move | None:
        token = uuid4().hex
        document = await self._find_and_set(
            {**query, "upload_id": {"$nin": list(passed_over)}},
            {"moving_by": token, "moving_until": from_now(LEASE_SECONDS)},
        )
        if document is None:
            return None
        upload = to_upload(document)
        return Move(upload, token, StorageKind(document.get("left") or upload.storage))

    async def _update(self, move: Move, fields: Mapping[str, Any], condition: Mapping[str, Any] | None = None) -> bool:
        return await self._set({**record_key(move.upload), "moving_by": move.token, **(condition or {})}, fields)


class MongoFileIndex(UploadRecords):
    """The id in the database, and the upload records by the names of files. Results have those that exist."""

    def __init__(self, database: MongoDatabase) -> None:
        super().__init__(database)
        self._storage = database["storage"]

    async def known_names(self, tenant_id: str, server_filenames: Collection[str]) -> Set[str]:
        query = {"tenant_id": tenant_id, "server_filename": {"$in": list(server_filenames)}}
        return {document["server_filename"] async for document in self._uploads.find(query, {"server_filename": 1})}

    async def find_uploads(self, tenant_id: str, upload_ids: Collection[str]) -> Sequence[Upload]:
        query: Document = {"tenant_id": tenant_id, "upload_id": {"$in": list(upload_ids)}}
        return [to_upload(document) async for document in self._uploads.find(query)]

    async def has_files_at(self, kind: StorageKind) -> bool:
        return await self._uploads.find_one({**STORED, "home": kind}, {"_id": True}) is not None

    async def storage_id(self) -> str | None:
        document = await self._storage.find_one({"_id": "identity"})
        return document["storage_id"] if document else None

    async def create_storage_id(self) -> str:
        """The id, created if there is none."""
        document = await self._storage.find_one_and_update(
            {"_id": "identity"},
            {"$setOnInsert": {"storage_id": uuid4().hex}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return str(document["storage_id"])


def _movable(kind: StorageKind) -> dict[str, Any]:
    return {"home": kind, **STORED, "damage": Damage.NONE}
