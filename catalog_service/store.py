"""The database of the catalog: its indexes and its stores."""

import asyncio
from contextlib import nullcontext

from pymongo import ASCENDING, IndexModel

from catalog_service.catalog.revision_store import InvalidateDuring, MongoRevisions
from catalog_service.identities.store import IDENTITY_INDEXES, MongoIdentityStore
from catalog_service.packages.store import SUMMARY_INDEX, MongoPackageStore
from catalog_service.releases.store import RELEASE_INDEXES, MongoPolicyStore, MongoReleaseStore
from catalog_service.retention.store import MongoRetentionStore
from catalog_service.versions.store import VERSION_INDEX, MongoUploadStore, MongoVersionStore
from common.mongo import Indexes, MongoDatabase
from common.mongo.schema import Schema
from common.work import work_indexes

# The sweeper queries all tenants; these two indexes have only the few unfinished documents.
_UNFINISHED = {"name": "halfway", "partialFilterExpression": {"halfway": True}}

INDEXES: Indexes = {
    "packages": [
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("id_key", ASCENDING)], unique=True),
        *IDENTITY_INDEXES["packages"],
        IndexModel(list(SUMMARY_INDEX.items())),
        IndexModel([("changed_at", ASCENDING)], **_UNFINISHED),
    ],
    "versions": [
        IndexModel([("tenant_id", ASCENDING), ("uid", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING), ("version_key", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("package_id", ASCENDING), ("installer_key", ASCENDING)], unique=True),
        IndexModel(VERSION_INDEX),
        IndexModel([("tenant_id", ASCENDING), ("package_uid", ASCENDING)]),
        IndexModel([("changed_at", ASCENDING)], **_UNFINISHED),
        *IDENTITY_INDEXES["versions"],
        *RELEASE_INDEXES,
    ],
    "revisions": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
    "release_policies": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
    "retention_runs": [IndexModel([("tenant_id", ASCENDING)], unique=True), *work_indexes("retention")],
    "package_signers": [IndexModel([("tenant_id", ASCENDING), ("id_key", ASCENDING)], unique=True)],
    "finished_uploads": [
        IndexModel([("tenant_id", ASCENDING), ("server_filename", ASCENDING)], unique=True),
        IndexModel([("expires_at", ASCENDING)], expireAfterSeconds=0),
    ],
}

SCHEMA = Schema([], INDEXES)  # It has no migrations.


class MongoCatalogStore:
    """The stores of the database `catalog`."""

    def __init__(
        self, database: MongoDatabase, *, uploads_age: int, invalidate_during: InvalidateDuring = nullcontext
    ) -> None:
        """`uploads_age` is the lifetime of a finished upload in seconds; see MongoRevisions for the other."""
        self._database = database
        self.revisions = MongoRevisions(database, invalidate_during)
        self.packages = MongoPackageStore(database, self.revisions)
        self.versions = MongoVersionStore(database, self.revisions)
        self.identities = MongoIdentityStore(database)
        self.policies = MongoPolicyStore(database, self.revisions)
        self.releases = MongoReleaseStore(database, self.revisions)
        self.retention = MongoRetentionStore(database)
        self.uploads = MongoUploadStore(database, age=uploads_age)

    async def size(self, tenant_id: str) -> tuple[int, int]:
        """Return the numbers of packages and of active versions."""
        return await asyncio.gather(
            self._database["packages"].count_documents({"tenant_id": tenant_id, "halfway": False}),
            self._database["versions"].count_documents({"tenant_id": tenant_id, "state": "active"}),
        )

    async def forget_tenant(self, tenant_id: str) -> None:
        """Delete all documents of a tenant; upload_service deletes the installer files."""
        # Revisions are deleted first, and again at the end because a concurrent write may have added them.
        for name in ("revisions", *INDEXES, "revisions"):
            await self._database[name].delete_many({"tenant_id": tenant_id})
