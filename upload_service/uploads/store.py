"""The collection `uploads` in MongoDB, as transfers, claims and the outbox need it.

The lease of a transfer lasts until `lease_until`, and has the number `fence`. A process that waits for it puts itself
in `wanted_by`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pymongo import ASCENDING

from common.mongo import Document, MongoDatabase
from common.work import WorkQueue, due_now, is_waiting
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.store import (
    ANNOUNCE,
    INSPECT,
    LEASE_FREE,
    NOW,
    SCAN,
    SCRUB,
    UploadRecords,
    from_now,
    older_than,
    record_key,
    to_upload,
    to_upload_or_none,
)

LEASE_SECONDS = 15
KEPT_SECONDS = 6  # of a lease between two chunks; after its holder died, the next chunk waits for so long
CERTAIN_SECONDS = 1.0  # KEPT_SECONDS less 5 for jumps of the database's clock; also the age of the record's offset
WANTED_SECONDS = 1  # that a released lease is reserved for a process that waits; longer than `service.LEASE_PAUSE`
ANNOUNCING_SECONDS = 5  # until the announcement of a killed process, or a failed one, is repeated
_IS_FREE = {"$lt": ["$lease_until", NOW]}
FREE = {"$expr": _IS_FREE}
_IS_WANTED = {"$gt": ["$wanted_until", NOW]}
_KEEPS = {"$not": [{"$or": ["$cancelled", _IS_WANTED]}]}


def clock() -> float:
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MongoUploadStore(UploadRecords):
    """Every change is one conditional update; a record that does not meet the condition stays as it is.

    With `scans`, complete files are due for a scan.
    """

    def __init__(self, database: MongoDatabase, *, scans: bool = False) -> None:
        super().__init__(database)
        self._scans = scans
        seconds = ANNOUNCING_SECONDS
        self.announcements = WorkQueue(
            self._uploads, ANNOUNCE, to_upload, lease_seconds=seconds, first_pause=seconds, longest_pause=seconds
        )
        self._process = uuid4().hex
        self._is_ours = {"$or": [{"$eq": ["$wanted_by", self._process]}, {"$not": [_IS_WANTED]}]}

    async def find(self, tenant_id: str, file_id: str) -> Upload | None:
        return to_upload_or_none(await self._uploads.find_one({"tenant_id": tenant_id, "file_id": file_id}))

    async def find_installer(self, tenant_id: str, server_filename: str) -> Upload | None:
        query = {"tenant_id": tenant_id, "server_filename": server_filename}
        return to_upload_or_none(await self._uploads.find_one(query))

    async def unclaimed(self, tenant_id: str, names: Sequence[str], **uploader: str) -> list[str]:
        """The names of those that are complete and linked to nothing; with `uploader`, only those of this caller."""
        query = {"tenant_id": tenant_id, "server_filename": {"$in": list(names)}, "status": Status.COMPLETE, **uploader}
        return [document["server_filename"] async for document in self._uploads.find(query, {"server_filename": True})]

    async def find_linked(self, tenant_id: str, version_uids: Sequence[str]) -> list[Upload]:
        """The files of these versions, those that are being deleted included."""
        query = {"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}}
        return [to_upload(document) async for document in self._uploads.find(query)]

    async def create(self, tenant_id: str, file_id: str, total: int, uploader: str = "") -> None:
        """Create the record of a transfer, unless there is one."""
        await self._create(tenant_id, file_id, uploader, {"total": total, "status": Status.OPEN, "cancelled": False})

    async def add_cancelled(self, tenant_id: str, file_id: str, uploader: str = "") -> None:
        """Create the record of a cancelled transfer, unless there is a record."""
        await self._create(tenant_id, file_id, uploader, {"total": 0, "status": Status.CANCELLED, "cancelled": True})

    async def _create(self, tenant_id: str, file_id: str, uploader: str, fields: Mapping[str, Any]) -> None:
        record = {
            "upload_id": uuid4().hex,
            "offset": 0,
            "fence": 0,
            "lease_until": LEASE_FREE,
            "tainted": False,
            "part": 0,
            "home": StorageKind.FOLDER,
            "damage": Damage.NONE,
            **fields,
        }
        # Two concurrent calls create one record: the server repeats an upsert by a unique key itself.
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "file_id": file_id},
            {"$setOnInsert": {**record, "uploader": uploader}, "$currentDate": {"updated_at": True}},
            upsert=True,
        )

    async def acquire_lease(self, tenant_id: str, file_id: str) -> Upload | None:
        """Acquire the lease of an open transfer. None if another request has it or waits for it, or none is open."""
        fields = {
            "tainted": {"$or": ["$tainted", {"$gt": ["$lease_until", LEASE_FREE]}]},
            "fence": {"$add": ["$fence", 1]},
            "lease_until": from_now(LEASE_SECONDS),
            "wanted_until": LEASE_FREE,
            "updated_at": NOW,
        }
        query = {
            "tenant_id": tenant_id,
            "file_id": file_id,
            "status": Status.OPEN,
            "cancelled": {"$ne": True},
            "$expr": {"$and": [_IS_FREE, self._is_ours]},
        }
        return to_upload_or_none(await self._find_and_set(query, fields))

    async def want(self, upload: Upload) -> None:
        """Ask the holder of the lease to keep it no longer; then the lease is for this process for a moment."""
        query = {**record_key(upload), "status": Status.OPEN, "$expr": self._is_ours}
        await self._set(query, {"wanted_by": self._process, "wanted_until": from_now(WANTED_SECONDS)})

    async def renew(self, upload: Upload) -> bool:
        """Extend the lease; False if it was released or another request has it."""
        # A late renewal must not acquire a lease that was released.
        held = {"fence": upload.fence, "lease_until": {"$gt": LEASE_FREE}}
        return await self._update(upload, Status.OPEN, {"lease_until": from_now(LEASE_SECONDS)}, held)

    async def set_generation(self, upload: Upload) -> bool:
        """Record that the acknowledged bytes are in the file of `generation`, out of reach of earlier holders."""
        return await self._update_leased(upload, {"part": upload.generation, "tainted": False, "offset": upload.offset})

    async def release(self, upload: Upload) -> bool:
        """Release the lease at its offset; False if another request has it. The transfer is as old as before."""
        query = {**record_key(upload), "status": Status.OPEN, "fence": upload.fence}
        return await self._set(query, {"lease_until": LEASE_FREE, "offset": {"$max": ["$offset", upload.offset]}})

    async def advance(self, upload: Upload, *, keep: bool = False) -> Upload | None:
        """Acknowledge the bytes before `offset`, and release the lease; `keep` keeps one that nobody waits for.

        Returns the transfer, with `certain_until` if the lease is kept; None if another request has the lease.
        """
        sent = clock()
        keeps = _KEEPS if keep else False
        fields = {
            "offset": upload.offset,
            "lease_until": {"$cond": [keeps, from_now(KEPT_SECONDS), LEASE_FREE]},
            "updated_at": NOW,
        }
        document = await self._find_and_set(self._leased(upload), fields)
        if document is None:
            return None
        is_kept = document["lease_until"] > LEASE_FREE
        return replace(to_upload(document), certain_until=sent + CERTAIN_SECONDS if is_kept else 0)

    def _leased(self, upload: Upload) -> Document:
        """The query for an open transfer while our lease is the last one; under a kept one, unless it was cancelled."""
        known = {"cancelled": {"$ne": True}} if upload.is_kept else {}
        return {**record_key(upload), "status": Status.OPEN, "fence": upload.fence, **known}

    async def _update_leased(self, upload: Upload, fields: Mapping[str, Any]) -> bool:
        """Update an open transfer while our lease is the last one acquired."""
        return await self._update(upload, Status.OPEN, fields, {"fence": upload.fence})

    async def _update(
        self, upload: Upload, status: Status, fields: Mapping[str, Any], condition: Mapping[str, Any] | None = None
    ) -> bool:
        query = {**record_key(upload), "status": status, **(condition or {})}
        return await self._set(query, {**fields, "updated_at": NOW})

    async def cancel(self, upload: Upload) -> None:
        """Allow no further lease of an open transfer; the request that has the lease keeps it."""
        await self._update(upload, Status.OPEN, {"cancelled": True})

    async def complete(self, upload: Upload) -> bool:
        """Record the whole file, not announced yet, and release the lease."""
        fields = {
            "status": Status.COMPLETE,
            "offset": upload.size,
            "total": upload.size,
            "server_filename": upload.server_filename,
            "size": upload.size,
            "sha256": upload.sha256,
            "request_id": upload.request_id,
            "traceparent": upload.traceparent,
            "lease_until": LEASE_FREE,
            "cancelled": False,  # The last chunk was on its way when the transfer was cancelled.
            **due_now(ANNOUNCE),
            **due_now(INSPECT),
            **due_now(SCRUB),  # later: the whole file was read for its digest
            **(due_now(SCAN) if self._scans else {}),
        }
        return await self._set(self._leased(upload), {**fields, "updated_at": NOW})

    async def abandon(self, upload: Upload) -> bool:
        """open → deleting, while our lease is the last one acquired."""
        return await self._update_leased(upload, {"status": Status.DELETING})

    async def delete_record(self, upload: Upload) -> None:
        """Delete the record of an upload that is being deleted; that of a cancelled transfer stays, as `cancelled`.

        A record stays until its upload is announced, and the collector comes back for it. Its X-File-ID is free.
        """
        deleting = {
            "tenant_id": upload.tenant_id,
            "upload_id": upload.upload_id,
            "fence": upload.fence,
            "status": Status.DELETING,
        }
        # The ledger keeps a row of each deleted upload until no record has its id.
        empty = {"status": Status.CANCELLED, "upload_id": uuid4().hex, "total": 0, "offset": 0, "updated_at": NOW}
        if await self._set({**deleting, "cancelled": True}, empty):
            return
        result = await self._uploads.delete_one({**deleting, "$nor": [is_waiting(ANNOUNCE)]})
        if not result.deleted_count and not upload.original_file_id:
            # No X-File-ID begins with a tilde.
            renamed = {"file_id": f"~{upload.upload_id}", "announced_as": "$file_id"}
            await self._set({**deleting, "file_id": upload.file_id}, renamed)

    async def link(self, upload: Upload, version_uid: str) -> Upload | None:
        """complete → linked, or still linked to this version; else None. A claim and the collector cannot both win."""
        linkable = [{"status": Status.COMPLETE}, {"status": Status.LINKED, "version_uid": version_uid}]
        fields = {
            "status": Status.LINKED,
            "version_uid": {"$literal": version_uid},
            "fence": {"$add": ["$fence", 1]},
            "updated_at": NOW,
        }
        return to_upload_or_none(await self._find_and_set({**record_key(upload), "$or": linkable}, fields))

    async def unlink(self, upload: Upload) -> bool:
        """linked → complete, for the claim that the quota refused, unless a later claim has repeated it."""
        fields = {"status": Status.COMPLETE, "version_uid": ""}
        return await self._update(upload, Status.LINKED, fields, {"fence": upload.fence})

    async def mark_deleting(self, upload: Upload) -> bool:
        """Any status → deleting, unless the record has changed since it was read, or a request has its lease."""
        conditions: dict[Status, dict[str, Any]] = {
            Status.OPEN: {"fence": upload.fence, **FREE},
            Status.LINKED: {"version_uid": upload.version_uid},
        }
        return await self._update(upload, upload.status, {"status": Status.DELETING}, conditions.get(upload.status))

    async def find_stale(self, status: Status, age: int, limit: int) -> list[Upload]:
        """Uploads of all tenants in this status that have not changed for `age` seconds.

        Deleted uploads that wait only for their announcement are left out.
        """
        unannounced = {**is_waiting(ANNOUNCE), "announced_as": {"$gt": ""}}
        query = {"status": status, "$expr": older_than("updated_at", age), "$nor": [unannounced]}
        cursor = self._uploads.find(query).sort("updated_at", ASCENDING).limit(limit)
        return [to_upload(document) async for document in cursor]

    async def delete_cancelled(self, age: int) -> None:
        """Delete the records of cancelled transfers of all tenants that have not changed for `age` seconds."""
        await self._uploads.delete_many({"status": Status.CANCELLED, "$expr": older_than("updated_at", age)})

    async def forget_tenant(self, tenant_id: str) -> None:
        await self._uploads.delete_many({"tenant_id": tenant_id})
