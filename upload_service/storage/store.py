"""The collection `uploads` by the place of the files: moves between storages, and the names that have a record.

`home` is the storage of a file. `left` is the previous one, as long as it may still have a copy.
"""

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument

from common.mongo import Document, MongoDatabase, long_timeout
from common.work import Lease, WorkQueue, due_now
from upload_service.model import Damage, StorageKind, Upload
from upload_service.store import MARK, MOVE, STORED, UploadRecords, older_than, record_key, to_upload, to_upload_or_none

PAUSE_SECONDS = 60  # until a failed move is repeated
SETTLED_SECONDS = 5.0  # without a change, after which a completed file has its final name


@dataclass(frozen=True)
class Move:
    """A file to move. `previous` is the storage that may still have a copy since the move before."""

    upload: Upload
    previous: StorageKind | None


class MongoMoveStore(UploadRecords):
    """The queue of files to move. Every change of a record is one update that only the holder of its lease can make."""

    def __init__(self, database: MongoDatabase) -> None:
        super().__init__(database)
        self.queue = WorkQueue(
            self._uploads,
            MOVE,
            _to_move,
            condition=STORED,
            lease_seconds=60,
            first_pause=PAUSE_SECONDS,
            longest_pause=PAUSE_SECONDS,
        )

    async def make_due(self, kinds: Iterable[StorageKind]) -> None:
        """Make the undamaged files in these storages due that were not changed for a while, and copies left behind."""
        new = {f"work.{MOVE}.due": {"$exists": False}}
        misplaced = {"home": {"$in": list(kinds)}, **new, "damage": Damage.NONE}
        settled = {"$expr": older_than("updated_at", SETTLED_SECONDS)}
        query = {**STORED, "$or": [{**misplaced, **settled}, {"left": {"$gt": ""}, **new}]}
        with long_timeout():
            await self._uploads.update_many(query, [{"$set": due_now(MOVE)}])

    async def renew(self, lease: Lease[Move]) -> bool:
        """Extend the lease; False if it is another's, or the file is being deleted."""
        return await self.queue.renew(lease)

    async def set_storage(self, lease: Lease[Move], kind: StorageKind) -> bool:
        """Record the file's new storage, and the old one as its previous storage."""
        return await self.queue.renew(lease, {"home": kind, "left": lease.record.upload.storage})

    async def clear_previous(self, lease: Lease[Move]) -> None:
        """End a move."""
        await self.queue.finish(lease, {"left": ""})

    async def mark_damaged(self, lease: Lease[Move], damage: Damage) -> None:
        await self.queue.finish(lease, {"damage": damage, **MARK})

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


def _to_move(document: Document) -> Move:
    return Move(to_upload(document), StorageKind(document["left"]) if document.get("left") else None)
