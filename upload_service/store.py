"""Shared by the MongoDB stores: indexes, conditions, their base class, and the mapping of a record to an `Upload`."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument

from common.mongo import Document, Indexes, MongoDatabase, long_timeout
from common.mongo.schema import Schema
from common.work import NEVER, work_indexes
from upload_service.model import Damage, Status, StorageKind, Upload

NOW = "$$NOW"  # by the clock of the database, so that replicas agree about leases and ages
LEASE_FREE = datetime(1970, 1, 1, tzinfo=UTC)  # `lease_until` of a transfer without a lease
STORED: Document = {"status": {"$in": [Status.COMPLETE, Status.LINKED]}}
MARKS_LIFETIME = 3 * 3600  # seconds after the begin of the hour in which a client counts once
COUNTS_LIFETIME = 402 * 24 * 3600  # seconds; `get_statistics` answers up to 400 days
ANNOUNCE, INSPECT, MOVE, SCAN, SCRUB = "announce", "inspect", "move", "scan", "scrub"  # kinds of work
# The mark of damage that is found now. The scrub reads the file again soon, or when it says so itself.
MARK: Document = {
    "damaged_at": NOW,
    f"work.{SCRUB}.due": {"$cond": [{"$gt": [f"$work.{SCRUB}.lease", ""]}, f"$work.{SCRUB}.due", NEVER]},
}
QUOTA_TOTALS = ("tenant_id", "used", "reserved")

UPLOAD_FIELDS = {  # the names of fields in the record that differ from those of an `Upload`
    "needs_copy": "tainted",
    "is_cancelled": "cancelled",
    "generation": "part",
    "storage": "home",
    "original_file_id": "announced_as",
    "is_withheld": "withheld",
}
_SET = {"$gt": ""}  # a text that is not empty
INDEXES: Indexes = {
    "uploads": [
        IndexModel(["tenant_id", "file_id"], unique=True),
        IndexModel(["tenant_id", "server_filename"], unique=True, partialFilterExpression={"server_filename": _SET}),
        IndexModel(["tenant_id", "version_uid"], partialFilterExpression={"version_uid": _SET}),
        IndexModel(["tenant_id", "upload_id"]),
        IndexModel(["tenant_id", "damage"], partialFilterExpression={"damage": _SET}),
        *work_indexes(ANNOUNCE, backlog=True),
        *work_indexes(INSPECT),
        *work_indexes(MOVE),
        *work_indexes(SCAN, backlog=True),
        *work_indexes(SCRUB),
        # Background work scans all tenants: for uploads to move or remove.
        IndexModel(["status", "updated_at"]),
        IndexModel(["home", f"work.{MOVE}.due"]),
        IndexModel(["tenant_id", "scan.state"], partialFilterExpression={"scan.state": "infected"}),
        IndexModel(["left"], partialFilterExpression={"left": _SET}),
    ],
    "quotas": [
        IndexModel(["tenant_id"], unique=True),
        IndexModel([*QUOTA_TOTALS]),  # The documents are long; the metrics need these fields only.
    ],
    "download_marks": [
        IndexModel(["tenant_id", "version_uid", "client", "hour"], unique=True),
        IndexModel(["hour"], expireAfterSeconds=MARKS_LIFETIME),
    ],
    "download_counts": [
        IndexModel(["tenant_id", "version_uid", "day"], unique=True),
        IndexModel(["tenant_id", "day", "version_uid", "count"]),  # It has all that totals need.
        IndexModel(["day"], expireAfterSeconds=COUNTS_LIFETIME),
    ],
}

SCHEMA = Schema([], INDEXES)  # It has no migrations.


class UploadRecords:
    """The collection `uploads`, as the base of the stores."""

    def __init__(self, database: MongoDatabase) -> None:
        self._uploads = database["uploads"]

    async def _set(self, query: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
        """Set fields of the record that meets the query; False if there is none."""
        return (await self._uploads.update_one(query, [{"$set": fields}])).matched_count == 1

    async def _find_and_set(self, query: Document, fields: Document, *, oldest: str = "") -> Document | None:
        """Set fields of one record that meets the query, that with the oldest date `oldest`; returns it changed."""
        sort = [(oldest, ASCENDING)] if oldest else None
        return await self._uploads.find_one_and_update(
            query, [{"$set": fields}], sort=sort, return_document=ReturnDocument.AFTER
        )

    async def _totals(self, query: Document) -> tuple[int, int]:
        """The number of the uploads that match a query, and their bytes."""
        group = {"$group": {"_id": None, "files": {"$sum": 1}, "bytes": {"$sum": "$size"}}}
        with long_timeout():
            groups = await self._uploads.aggregate([{"$match": query}, group]).to_list(None)
        return (groups[0]["files"], groups[0]["bytes"]) if groups else (0, 0)


def from_now(seconds: float) -> Document:
    return {"$add": [NOW, seconds * 1000]}


def older_than(field: str, seconds: float) -> Document:
    """The condition that a date is more than so many seconds ago, or missing."""
    return {"$lt": [f"${field}", {"$subtract": [NOW, seconds * 1000]}]}


def record_key(upload: Upload) -> dict[str, Any]:
    """The query for the record of an upload, which finds no later upload under the same X-File-ID."""
    return {"tenant_id": upload.tenant_id, "file_id": upload.file_id, "upload_id": upload.upload_id}


def to_upload_or_none(document: Document | None) -> Upload | None:
    return None if document is None else to_upload(document)


def to_upload(document: Document) -> Upload:
    names = ((field.name, UPLOAD_FIELDS.get(field.name, field.name)) for field in fields(Upload))
    values = {attribute: document[name] for attribute, name in names if name in document}
    kinds = {"status": Status(document["status"]), "storage": StorageKind(document["home"])}
    damage, is_infected = Damage(document["damage"]), document.get("scan", {}).get("state") == "infected"
    return Upload(**{**values, **kinds, "damage": damage, "is_infected": is_infected})
