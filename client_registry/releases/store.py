"""Releases of the client program, their errors, and their documents in MongoDB."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from common.errors import Conflict
from common.mongo import Document, Indexes, MongoDatabase


@dataclass(frozen=True)
class Installer:
    """The file of a release. `size` is in bytes, `sha256` hexadecimal."""

    server_filename: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Release:
    """A published version of the client program, four numeric parts."""

    uid: str
    version: str
    published_at: datetime
    installer: Installer | None = None


class ReleaseExists(Conflict):
    code = "release_exists"
    text = "Version {version} of the client was published already."


ACTIVE, PENDING, ABANDONED = "active", "pending", "abandoned"

RELEASE_INDEXES: Indexes = {
    "releases": [
        IndexModel(["tenant_id", "uid"], unique=True),
        IndexModel(["tenant_id", "version"], unique=True, partialFilterExpression={"version": {"$exists": True}}),
        IndexModel([("tenant_id", ASCENDING), ("status", ASCENDING), ("published_at", DESCENDING)]),
        IndexModel(["status", "reserved_at"]),  # The sweep reads all tenants.
    ],
}


class MongoReleaseStore:
    """One document per release; an abandoned one has no `version`, so that the version can be published again."""

    def __init__(self, database: MongoDatabase) -> None:
        self._releases = database["releases"]

    async def latest(self, tenant_id: str) -> Release | None:
        document = await self._releases.find_one(
            {"tenant_id": tenant_id, "status": ACTIVE}, sort=[("published_at", DESCENDING), ("_id", DESCENDING)]
        )
        return _release(document) if document else None

    async def add(self, tenant_id: str, release: Release) -> None:
        """Raises ReleaseExists."""
        await self._insert(tenant_id, release.version, {"uid": release.uid, **_published(release)})

    async def reserve(self, tenant_id: str, uid: str, version: str, at: datetime) -> None:
        """Reserve a version for a release that is being published. Raises ReleaseExists."""
        await self._insert(tenant_id, version, {"uid": uid, "status": PENDING, "reserved_at": at})

    async def activate(self, tenant_id: str, release: Release) -> bool:
        """Publish a reserved release; False if the reservation is gone."""
        pending = {"tenant_id": tenant_id, "uid": release.uid, "status": PENDING}
        result = await self._releases.update_one(pending, {"$set": _published(release)})
        return result.matched_count == 1

    async def abandon(self, tenant_id: str, uid: str) -> None:
        """Free the version of an unfinished release; `unfinished` still returns the release."""
        pending = {"tenant_id": tenant_id, "uid": uid, "status": PENDING}
        await self._releases.update_one(pending, {"$set": {"status": ABANDONED}, "$unset": {"version": ""}})

    async def remove(self, tenant_id: str, uid: str) -> None:
        """Delete an unfinished release."""
        await self._releases.delete_one({"tenant_id": tenant_id, "uid": uid, "status": {"$ne": ACTIVE}})

    async def unfinished(self, before: datetime) -> Sequence[tuple[str, str]]:
        """Tenant and uid of the unfinished releases that were reserved before a moment."""
        cursor = self._releases.find({"status": {"$in": [PENDING, ABANDONED]}, "reserved_at": {"$lt": before}})
        return [(document["tenant_id"], document["uid"]) async for document in cursor]

    async def _insert(self, tenant_id: str, version: str, values: Document) -> None:
        try:
            await self._releases.insert_one({"tenant_id": tenant_id, "version": version, **values})
        except DuplicateKeyError:
            raise ReleaseExists(version=version) from None


def _published(release: Release) -> Document:
    installer = dict(vars(release.installer)) if release.installer else None
    return {"status": ACTIVE, "published_at": release.published_at, "installer": installer}


def _release(document: Document) -> Release:
    installer = Installer(**document["installer"]) if document["installer"] else None
    return Release(document["uid"], document["version"], document["published_at"], installer)
