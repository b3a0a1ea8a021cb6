"""The records of uploads and quotas in MongoDB: how they are found, and what one of an upload says."""

from datetime import UTC, datetime

from pymongo import ASCENDING, IndexModel

from common.mongo import Document, Indexes
from upload_service.model import Damage, Status, StorageKind, Upload

QUOTAS_AT_A_GLANCE = ("tenant_id", "used", "reserved")
LEASE_FREE = datetime(1970, 1, 1, tzinfo=UTC)  # of a lease that nobody has

INDEXES: Indexes = {
    "uploads": [
        IndexModel([("tenant_id", ASCENDING), ("file_id", ASCENDING)], unique=True),
        IndexModel(
            [("tenant_id", ASCENDING), ("server_filename", ASCENDING)],
            unique=True,
            partialFilterExpression={"server_filename": {"$gt": ""}},
        ),
        IndexModel(
            [("tenant_id", ASCENDING), ("version_uid", ASCENDING)],
            partialFilterExpression={"version_uid": {"$gt": ""}},
        ),
        IndexModel([("tenant_id", ASCENDING), ("upload_id", ASCENDING)]),
        IndexModel([("tenant_id", ASCENDING), ("damage", ASCENDING)], partialFilterExpression={"damage": {"$gt": ""}}),
        # Scans of the service's own span all tenants: what is to be announced, inspected, read again, moved, or was
        # left behind.
        IndexModel([("announced", ASCENDING), ("updated_at", ASCENDING)], partialFilterExpression={"announced": False}),
        IndexModel(
            [("inspection", ASCENDING), ("updated_at", ASCENDING)], partialFilterExpression={"inspection": "waiting"}
        ),
        IndexModel([("status", ASCENDING), ("updated_at", ASCENDING)]),
        IndexModel([("status", ASCENDING), ("checked_at", ASCENDING)]),
        IndexModel([("damage", ASCENDING), ("checked_at", ASCENDING)], partialFilterExpression={"damage": {"$gt": ""}}),
        IndexModel([("home", ASCENDING), ("status", ASCENDING)]),
        IndexModel([("left", ASCENDING)], partialFilterExpression={"left": {"$gt": ""}}),
    ],
    "quotas": [
        IndexModel([("tenant_id", ASCENDING)], unique=True),
        # The documents are long; what figures tell of them is not.
        IndexModel([(name, ASCENDING) for name in QUOTAS_AT_A_GLANCE]),
    ],
}


def to_upload_or_none(document: Document | None) -> Upload | None:
    """The upload that a record describes, where there is one."""
    return None if document is None else to_upload(document)


def to_upload(document: Document) -> Upload:
    """The upload that a record describes."""
    return Upload(
        tenant_id=document["tenant_id"],
        file_id=document["file_id"],
        upload_id=document["upload_id"],
        total=document["total"],
        offset=document["offset"],
        fence=document["fence"],
        status=Status(document["status"]),
        needs_copy=document["tainted"],
        is_cancelled=document.get("cancelled", False),
        generation=document["part"],
        storage=StorageKind(document["home"]),
        damage=Damage(document["damage"]),
        server_filename=document.get("server_filename", ""),
        size=document.get("size", 0),
        sha256=document.get("sha256", ""),
        version_uid=document.get("version_uid", ""),
        original_file_id=document.get("announced_as", ""),
        request_id=document.get("request_id", ""),
        traceparent=document.get("traceparent", ""),
    )
