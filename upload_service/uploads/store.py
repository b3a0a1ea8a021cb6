"""The collection `uploads` in MongoDB. Time is the database's own, so that replicas agree about leases and ages."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pymongo import ASCENDING, ReturnDocument

from common.mongo import MongoDatabase
from upload_service.inspection.inspector import State
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.store import LEASE_FREE, to_upload, to_upload_or_none

LEASE = 15_000  # milliseconds

_NOW = "$$NOW"
_FREE = {"$expr": {"$lt": ["$lease_until", _NOW]}}


class MongoUploadStore:
    """Every change is one conditional update; what the condition does not meet stays as it is."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def find(self, tenant_id: str, file_id: str) -> Upload | None:
        return to_upload_or_none(await self._uploads.find_one({"tenant_id": tenant_id, "file_id": file_id}))

    async def find_installer(self, tenant_id: str, server_filename: str) -> Upload | None:
        return to_upload_or_none(
            await self._uploads.find_one({"tenant_id": tenant_id, "server_filename": server_filename})
        )

    async def unclaimed(self, tenant_id: str, server_filenames: Sequence[str]) -> list[str]:
        """The names of those that are complete and linked to nothing."""
        found = self._uploads.find(
            {"tenant_id": tenant_id, "server_filename": {"$in": list(server_filenames)}, "status": Status.COMPLETE},
            {"server_filename": True},
        )
        return [document["server_filename"] async for document in found]

    async def find_linked(self, tenant_id: str, version_uids: Sequence[str]) -> list[Upload]:
        """What these versions are linked to, what is being deleted for them included."""
        found = self._uploads.find({"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}})
        return [to_upload(document) async for document in found]

    async def create(self, tenant_id: str, file_id: str, total: int) -> None:
        await self._add(tenant_id, file_id, {"total": total, "status": Status.OPEN, "cancelled": False})

    async def add_cancelled(self, tenant_id: str, file_id: str) -> None:
        await self._add(tenant_id, file_id, {"total": 0, "status": Status.CANCELLED, "cancelled": True})

    async def _add(self, tenant_id: str, file_id: str, fields: Mapping[str, Any]) -> None:
        # Two of these at once are one record: the server tries an upsert by a unique key again by itself.
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "file_id": file_id},
            {
                "$setOnInsert": {
                    "upload_id": uuid4().hex,
                    "offset": 0,
                    "fence": 0,
                    "lease_until": LEASE_FREE,
                    "tainted": False,
                    "part": 0,
                    "home": StorageKind.FOLDER,
                    "damage": Damage.NONE,
                    **fields,
                },
                "$currentDate": {"updated_at": True},
            },
            upsert=True,
        )

    async def acquire_lease(self, tenant_id: str, file_id: str) -> Upload | None:
        document = await self._uploads.find_one_and_update(
            {"tenant_id": tenant_id, "file_id": file_id, "status": Status.OPEN, "cancelled": {"$ne": True}, **_FREE},
            [
                {
                    "$set": {
                        "tainted": {"$or": ["$tainted", {"$gt": ["$lease_until", LEASE_FREE]}]},
                        "fence": {"$add": ["$fence", 1]},
                        "lease_until": {"$add": [_NOW, LEASE]},
                        "updated_at": _NOW,
                    }
                }
            ],
            return_document=ReturnDocument.AFTER,
        )
        return to_upload_or_none(document)

    async def cancel(self, upload: Upload) -> None:
        await self._turn(upload, Status.OPEN, {"cancelled": True})

    async def renew(self, upload: Upload) -> bool:
        # One that comes late must not take again what was given back.
        held = {"fence": upload.fence, "lease_until": {"$gt": LEASE_FREE}}
        return await self._turn(upload, Status.OPEN, {"lease_until": {"$add": [_NOW, LEASE]}}, held)

    async def set_generation(self, upload: Upload) -> bool:
        return await self._change(upload, {"part": upload.generation, "tainted": False})

    async def release(self, upload: Upload) -> bool:
        return await self._change(upload, {"lease_until": LEASE_FREE})

    async def advance(self, upload: Upload) -> bool:
        return await self._change(upload, {"offset": upload.offset, "lease_until": LEASE_FREE})

    async def complete(self, upload: Upload) -> bool:
        return await self._change(
            upload,
            {
                "status": Status.COMPLETE,
                "offset": upload.size,
                "total": upload.size,
                "server_filename": upload.server_filename,
                "size": upload.size,
                "sha256": upload.sha256,
                "request_id": upload.request_id,
                "traceparent": upload.traceparent,
                "announced": False,
                "announcing_until": LEASE_FREE,
                "inspection": State.WAITING,
                "checked_at": _NOW,  # All of it was read to know its digest.
                "lease_until": LEASE_FREE,
                "cancelled": False,  # The last chunk was on its way when the transfer was cancelled.
            },
        )

    async def abandon(self, upload: Upload) -> bool:
        """open → deleting, while our lease is the last one taken."""
        return await self._change(upload, {"status": Status.DELETING})

    async def delete_record(self, upload: Upload) -> None:
        """Delete the record of an upload that is being deleted; that of a cancelled transfer stays, as `cancelled`.

        While it is not announced the record stays for the relay, and the collector comes back for it; its X-File-ID is
        free from now on.
        """
        gone = {
            "tenant_id": upload.tenant_id,
            "upload_id": upload.upload_id,
            "fence": upload.fence,
            "status": Status.DELETING,
        }
        # The ledger keeps a row of each deleted upload until no record has its id.
        empty = {"status": Status.CANCELLED, "upload_id": uuid4().hex, "total": 0, "offset": 0, "updated_at": _NOW}
        if (await self._uploads.update_one({**gone, "cancelled": True}, [{"$set": empty}])).matched_count:
            return
        deleted = await self._uploads.delete_one({**gone, "announced": {"$ne": False}})
        if not deleted.deleted_count and not upload.original_file_id:
            # No X-File-ID begins with a tilde.
            renamed = {"file_id": f"~{upload.upload_id}", "announced_as": "$file_id"}
            await self._uploads.update_one({**gone, "file_id": upload.file_id}, [{"$set": renamed}])

    async def link(self, upload: Upload, version_uid: str) -> Upload | None:
        """complete → linked, or linked to this version still; the collector wants the same record, and one gets it."""
        document = await self._uploads.find_one_and_update(
            {
                "tenant_id": upload.tenant_id,
                "file_id": upload.file_id,
                "upload_id": upload.upload_id,
                "$or": [{"status": Status.COMPLETE}, {"status": Status.LINKED, "version_uid": version_uid}],
            },
            [
                {
                    "$set": {
                        "status": Status.LINKED,
                        "version_uid": {"$literal": version_uid},
                        "fence": {"$add": ["$fence", 1]},
                        "updated_at": _NOW,
                    }
                }
            ],
            return_document=ReturnDocument.AFTER,
        )
        return to_upload_or_none(document)

    async def unlink(self, upload: Upload) -> bool:
        """linked → complete, where a claim could not be paid and is the last one."""
        unlinked = {"status": Status.COMPLETE, "version_uid": ""}
        return await self._turn(upload, Status.LINKED, unlinked, {"fence": upload.fence})

    async def mark_deleting(self, upload: Upload) -> bool:
        """Whatever it is → deleting, unless it changed since it was read, or a request has its lease."""
        conditions: dict[Status, dict[str, Any]] = {
            Status.OPEN: {"fence": upload.fence, **_FREE},
            Status.LINKED: {"version_uid": upload.version_uid},
        }
        return await self._turn(upload, upload.status, {"status": Status.DELETING}, conditions.get(upload.status))

    async def find_stale(self, status: Status, age: int, limit: int) -> list[Upload]:
        """Uploads of all tenants in this status that have not changed for `age` seconds.

        Of which nothing is left but an announcement that waits, those are left out.
        """
        waiting = {"announced": False, "announced_as": {"$gt": ""}}
        found = (
            self._uploads.find({"status": status, **_older(age), "$nor": [waiting]})
            .sort("updated_at", ASCENDING)
            .limit(limit)
        )
        return [to_upload(document) async for document in found]

    async def delete_cancelled(self, age: int) -> None:
        await self._uploads.delete_many({"status": Status.CANCELLED, **_older(age)})

    async def forget_tenant(self, tenant_id: str) -> None:
        await self._uploads.delete_many({"tenant_id": tenant_id})

    async def _change(self, upload: Upload, fields: Mapping[str, Any]) -> bool:
        """Change an open transfer while our lease is the last one taken."""
        return await self._turn(upload, Status.OPEN, fields, {"fence": upload.fence})

    async def _turn(
        self, upload: Upload, status: Status, fields: Mapping[str, Any], condition: Mapping[str, Any] | None = None
    ) -> bool:
        result = await self._uploads.update_one(
            {
                "tenant_id": upload.tenant_id,
                "file_id": upload.file_id,
                "upload_id": upload.upload_id,
                "status": status,
                **(condition or {}),
            },
            [{"$set": {**fields, "updated_at": _NOW}}],
        )
        return result.matched_count == 1


def _older(age: int) -> dict[str, Any]:
    """The condition of records that have not changed for `age` seconds."""
    return {"$expr": {"$lt": ["$updated_at", {"$subtract": [_NOW, age * 1000]}]}}
