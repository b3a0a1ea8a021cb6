"""The catalog in MongoDB: its indexes, and its stores over one database."""

from contextlib import nullcontext

from pymongo import ASCENDING, IndexModel

from catalog_service.packages.store import HEADINGS, MongoPackageStore
from catalog_service.revisions.store import MongoRevisions, Telling
from catalog_service.uploads.store import MongoUploadStore
from catalog_service.versions.store import MongoVersionStore
from common.mongo import Indexes, MongoDatabase

# Revisions name what the others hold: they go before it, and after, for what was still being written.
COLLECTIONS = ("revisions", "versions", "packages", "finished_uploads", "revisions")

# The sweeper looks at all tenants; only the few documents that are halfway stand in these two.
_HALFWAY = {"name": "halfway", "partialFilterExpression": {"halfway": True}}

INDEXES: Indexes = {
    "packages": [
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING)], unique=True),
        IndexModel(list(HEADINGS.items())),
        IndexModel([("changed_at", ASCENDING)], **_HALFWAY),
    ],
    "versions": [
        IndexModel([("tenant_id", ASCENDING), ("uid", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING), ("version_key", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING), ("installer_key", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING), ("version", ASCENDING)]),
        IndexModel([("tenant_id", ASCENDING), ("package_uid", ASCENDING)]),
        IndexModel([("changed_at", ASCENDING)], **_HALFWAY),
    ],
    "revisions": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
    "finished_uploads": [
        IndexModel([("tenant_id", ASCENDING), ("server_filename", ASCENDING)], unique=True),
        IndexModel([("expires_at", ASCENDING)], expireAfterSeconds=0),
    ],
}


class MongoCatalogStore:
    """All that the database `catalog` holds."""

    def __init__(self, database: MongoDatabase, *, uploads_age: int, telling: Telling = nullcontext) -> None:
        """`uploads_age` is how many seconds a finished upload is kept in mind; `telling` is held around each change."""
        self._database = database
        self.revisions = MongoRevisions(database, telling)
        self.packages = MongoPackageStore(database, self.revisions)
        self.versions = MongoVersionStore(database, self.revisions)
        self.uploads = MongoUploadStore(database, age=uploads_age)

    async def forget_tenant(self, tenant_id: str) -> None:
        """Remove all that a tenant has here; the installer files are upload_service's to remove."""
        for name in COLLECTIONS:
            await self._database[name].delete_many({"tenant_id": tenant_id})
