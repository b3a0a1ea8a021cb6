"""The leases of transfers: fields of the records in the collection `uploads`.

A lease lasts until `lease_until`, and has the number `fence`. A process that waits for it puts itself in `wanted_by`.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from common.mongo import Document, MongoDatabase
from upload_service.model import Status, Upload
from upload_service.store import LEASE_FREE, NOW, UploadRecords, from_now, record_key, to_upload_or_none

LEASE_SECONDS = 15
KEPT_SECONDS = 6  # of a lease between two chunks; after its holder died, the next chunk waits for so long
WANTED_SECONDS = 1  # that a released lease is reserved for a process that waits; longer than `service.LEASE_PAUSE`
_IS_FREE = {"$lt": ["$lease_until", NOW]}
FREE = {"$expr": _IS_FREE}
_IS_WANTED = {"$gt": ["$wanted_until", NOW]}
_KEEPS = {"$not": [{"$or": ["$cancelled", _IS_WANTED]}]}


class LeaseStore(UploadRecords):
    """Every change is one conditional update; a record that does not meet the condition stays as it is."""

    def __init__(self, database: MongoDatabase) -> None:
        super().__init__(database)
        self._process = uuid4().hex
        self._is_ours = {"$or": [{"$eq": ["$wanted_by", self._process]}, {"$not": [_IS_WANTED]}]}

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
        return await self._update_leased(
            upload, {"part": upload.generation, "tainted": False, "offset": upload.offset, "kept_fence": 0}
        )

    async def release(self, upload: Upload) -> bool:
        """Release the lease at its offset; False if another request has it. The transfer is as old as before."""
        query = {**record_key(upload), "status": Status.OPEN, "fence": upload.fence}
        return await self._set(
            query,
            {
                "lease_until": LEASE_FREE,
                "offset": {"$max": ["$offset", upload.offset]},
                "kept_fence": upload.kept_fence,
            },
        )

    async def advance(self, upload: Upload, *, keep: bool = False) -> Upload | None:
        """Acknowledge the bytes before `offset`. Releases the lease; `keep` is for that which nobody else waits for.

        `kept_fence` says whether it was kept.
        """
        keeps = _KEEPS if keep else False
        fields = {
            "offset": upload.offset,
            "lease_until": {"$cond": [keeps, from_now(KEPT_SECONDS), LEASE_FREE]},
            "kept_fence": {"$cond": [keeps, "$fence", 0]},
            "updated_at": NOW,
        }
        return to_upload_or_none(await self._find_and_set(self._leased(upload), fields))

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
