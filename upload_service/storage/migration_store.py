"""Moves of complete installers from home to home, in the collection `uploads`.

`home` is where a file is. `left` is where it was before, for as long as its file there may still be. `moving_by` and
`moving_until` are the lease of the one that moves it or tidies up after it, by the database's clock.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument

from common.mongo import Document, MongoDatabase, long_timeout
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.store import to_upload

LEASE = 60_000  # milliseconds
SETTLED = 5_000  # milliseconds without a change, after which the request that completed a file has named it

_NOW = "$$NOW"
_FREE = {"$lte": [{"$ifNull": ["$moving_until", _NOW]}, _NOW]}
_KEPT = [Status.COMPLETE, Status.LINKED]


@dataclass(frozen=True)
class Move:
    """A leased record. `left` is the home that its file has left and may still have a copy at, where there is one."""

    upload: Upload
    token: str
    previous: StorageKind


class MongoMoveStore:
    """Every change is one conditional update that the lease's last holder alone can make."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def lease_leftover(self, homes: Iterable[StorageKind], passed_over: Collection[str]) -> Move | None:
        """A file that has a new home and may still have a copy at one of these."""
        wanted = {"left": {"$in": list(homes)}, "status": {"$in": _KEPT}, "$expr": _FREE}
        return await self._lease(wanted, passed_over)

    async def lease_next(self, home: StorageKind, passed_over: Collection[str]) -> Move | None:
        """An undamaged file at this home that nothing has happened to for a while; `passed_over` are upload ids."""
        settled = {"$lt": ["$updated_at", {"$subtract": [_NOW, SETTLED]}]}
        wanted = {**_movable(home), "left": {"$in": ["", None]}, "$expr": {"$and": [_FREE, settled]}}
        return await self._lease(wanted, passed_over)

    async def renew(self, move: Move) -> bool:
        """Whether the move is still ours, and of a file that anyone wants."""
        kept = {"status": {"$in": _KEPT}}
        return await self._change(move, {"moving_until": {"$add": [_NOW, LEASE]}}, kept)

    async def release(self, move: Move) -> None:
        await self._change(move, {"moving_by": "", "moving_until": _NOW})

    async def set_storage(self, move: Move, home: StorageKind) -> bool:
        """Say that the file is at its new home, and has left the old one behind."""
        old = move.upload.storage
        return await self._change(move, {"home": home, "left": old}, {"status": {"$in": _KEPT}, "home": old})

    async def clear_previous(self, move: Move) -> None:
        """Say that nothing is left at the home before."""
        await self._change(move, {"left": ""})

    async def mark_damaged(self, move: Move, damage: Damage) -> None:
        """Say what is wrong with the file at its home."""
        await self._change(move, {"damage": damage, "damaged_at": _NOW}, {"home": move.upload.storage})

    async def find(self, upload: Upload) -> Upload | None:
        """The record as it is now, None where it is gone."""
        found = await self._uploads.find_one(_names(upload))
        return None if found is None else to_upload(found)

    async def remaining(self, home: StorageKind, passed_over: Collection[str] = ()) -> tuple[int, int]:
        """The files at a home that can be moved, but for these upload ids: how many, and their bytes."""
        stages: list[Mapping[str, Any]] = [
            {"$match": {**_movable(home), "upload_id": {"$nin": list(passed_over)}}},
            {"$group": {"_id": None, "files": {"$sum": 1}, "bytes": {"$sum": "$size"}}},
        ]
        with long_timeout():
            found = [row async for row in self._uploads.aggregate(stages)]
        return (found[0]["files"], found[0]["bytes"]) if found else (0, 0)

    async def count(self, home: StorageKind) -> int:
        """The files at a home, damaged ones included."""
        with long_timeout():
            return await self._uploads.count_documents({"home": home, "status": {"$in": _KEPT}})

    async def has_any(self, tenant_id: str, home: StorageKind) -> bool:
        """Whether a tenant has files at a home, or may have."""
        query = {"tenant_id": tenant_id, "$or": [{"home": home}, {"left": home}]}
        return await self._uploads.find_one(query, {"_id": 1}) is not None

    async def _lease(self, wanted: Mapping[str, Any], passed_over: Collection[str]) -> Move | None:
        token = uuid4().hex
        lease = {"moving_by": token, "moving_until": {"$add": [_NOW, LEASE]}}
        document: Document | None = await self._uploads.find_one_and_update(
            {**wanted, "upload_id": {"$nin": list(passed_over)}},
            [{"$set": lease}],
            return_document=ReturnDocument.AFTER,
        )
        if document is None:
            return None
        upload = to_upload(document)
        return Move(upload, token, StorageKind(document.get("left") or upload.storage))

    async def _change(self, move: Move, fields: Mapping[str, Any], condition: Mapping[str, Any] | None = None) -> bool:
        result = await self._uploads.update_one(
            {**_names(move.upload), "moving_by": move.token, **(condition or {})}, [{"$set": fields}]
        )
        return result.matched_count == 1


def _names(upload: Upload) -> dict[str, Any]:
    return {"tenant_id": upload.tenant_id, "file_id": upload.file_id, "upload_id": upload.upload_id}


def _movable(home: StorageKind) -> dict[str, Any]:
    return {"home": home, "status": {"$in": _KEPT}, "damage": Damage.NONE}
