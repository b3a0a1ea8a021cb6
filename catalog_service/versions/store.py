"""Versions in MongoDB, one document each.

`state` is `pending`, `active`, `deleting`, or `abandoned`: hidden while pending, when a request may still claim its
file. All but `active` versions are `halfway`, with a date of the database's clock.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from catalog_service.catalog.revision_store import MongoRevisions
from catalog_service.model.installers import FinishedUpload, InstallerFile
from catalog_service.model.packages import VersionExists, VersionNotFound
from catalog_service.model.releases import BEGIN, DUE_NOW
from catalog_service.model.versions import (
    CODES_OF,
    HiddenVersion,
    PackageVersion,
    PendingVersion,
    VersionName,
    document_of,
    file_fields,
    name_of,
    rule_version_of,
    version_of,
)
from common.auth.roles import EVERY_PACKAGE, regex_of
from common.mongo import Document, MongoDatabase

FIRST_BATCH = 100_000  # The server ends a batch at 16 MiB in any case.
BATCH_SIZE = 10_000  # version names of one server batch
YIELD_SIZE = 1000  # names yielded at once
NAME_FIELDS = {"_id": False, "package_id": True, "version": True, "uid": True, "stage": True}
VERSION_INDEX = [("tenant_id", ASCENDING), ("package_id", ASCENDING), ("version", ASCENDING)]
RULE_FIELDS = dict.fromkeys(("channel", "installer_type", "nested_type", "nested_paths", "product_code"), True)
EITHER = ("uid", "published_by", "identities")  # in which equal versions may differ
MAX_IN_LOOP = 50  # versions created on the event loop; more are created in a thread

_AUDITED = {"release.unaudited.0": {"$exists": False}}  # The audit log has all automatic changes of the version.
HIDE: list[Document] = [
    {
        "$set": {
            "state": {"$cond": [{"$eq": ["$state", "pending"]}, "abandoned", "deleting"]},
            "halfway": True,
            "published_at": "$changed_at",
            "changed_at": "$$NOW",
            # This frees the keys: no version begins with a space.
            "version_key": {"$concat": [" ", "$uid"]},
            "installer_key": {"$concat": [" ", "$uid"]},
        }
    }
]


class MongoVersionStore:
    """The versions of all tenants."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._packages = database["packages"]
        self._versions = database["versions"]
        self._revisions = revisions

    async def package_uid(self, tenant_id: str, package_id: str) -> str | None:
        """Return None for no package, or for one whose deletion has begun."""
        key = {"tenant_id": tenant_id, "package_id": package_id, "halfway": False}
        document = await self._packages.find_one(key, {"package_uid": True})
        return str(document["package_uid"]) if document else None

    async def reserve(self, pending: PendingVersion, version_key: str) -> None:
        """Raises VersionExists if the package has a version with this key or installer key."""
        version = pending.version
        document = {
            **document_of(version),
            "package_uid": pending.package_uid,
            "version_key": version_key,
            "installer_key": version.installer_key,
            "state": "pending",
            "halfway": True,
            "release": {"publisher": pending.publisher},
            # Also for the sweeper, which finishes the version if the request cannot.
            "limited_to": list(pending.packages),
        }
        try:
            # An upsert, because an insert cannot take the database's clock.
            await self._versions.update_one(
                {"tenant_id": pending.tenant_id, "uid": document.pop("uid")},
                {"$setOnInsert": document, "$currentDate": {"changed_at": True}},
                upsert=True,
            )
        except DuplicateKeyError:
            raise VersionExists(version=version.version) from None

    async def has_version(self, tenant_id: str, package_id: str, version: str) -> bool:
        """Whether the package has this version string; pending versions count."""
        key = {"tenant_id": tenant_id, "package_id": package_id, "version": version}
        states = {"$in": ["pending", "active"]}
        return await self._versions.find_one({**key, "state": states}, {"_id": True}) is not None

    async def find_equal_pending(self, pending: PendingVersion) -> PendingVersion | None:
        """Return a pending version that is equal except for its uid, and for what it takes from its file."""
        fields = {name: value for name, value in document_of(pending.version).items() if name not in EITHER}
        for name in CODES_OF.get(pending.version.installer_type, ()):
            fields[name] = {"$in": ["", fields[name]]}  # The file was not inspected before.
        document = await self._versions.find_one(
            {"tenant_id": pending.tenant_id, "package_uid": pending.package_uid, "state": "pending", **fields}
        )
        return _pending(document) if document else None

    async def activate(
        self, tenant_id: str, version: PackageVersion, file: InstallerFile, *, is_controlled: bool = False
    ) -> bool:
        """Activate a pending version; False if it is not pending any more. A controlled one is in no ring yet."""
        fields = {"state": "active", "halfway": False, **file_fields(version, file)}
        change: Document = {"$set": fields, "$unset": {"limited_to": ""}}
        if is_controlled:
            change["$set"] |= {**BEGIN, "release.is_open": not file.is_withheld}
            change["$currentDate"] = DUE_NOW
        async with self._revisions.record_change(tenant_id, version.package_id):
            result = await self._versions.update_one(
                {"tenant_id": tenant_id, "uid": version.uid, "state": "pending"}, change
            )
        return bool(result.modified_count)

    async def discard(self, tenant_id: str, uid: str) -> None:
        """Delete a version if it is still pending."""
        await self._versions.delete_one({"tenant_id": tenant_id, "uid": uid, "state": "pending"})

    async def find(self, tenant_id: str, uid: str) -> PackageVersion | None:
        document = await self._versions.find_one({"tenant_id": tenant_id, "uid": uid, "state": "active"})
        return version_of(document) if document else None

    async def of_package(self, tenant_id: str, package_id: str, **fields: str) -> Sequence[PackageVersion] | None:
        """Return the versions with these fields; None for no package, or for one whose deletion has begun."""
        package: Document = {"tenant_id": tenant_id, "package_id": package_id}
        versions = [{"$match": {**package, "state": "active", **fields}}]
        # One query, because a query costs more than its rows. A package without versions gives a row, too.
        cursor = self._packages.aggregate(
            [
                {"$match": {**package, "halfway": False}},
                {"$lookup": {"from": self._versions.name, "pipeline": versions, "as": "version"}},
                {"$unwind": {"path": "$version", "preserveNullAndEmptyArrays": True}},
                {"$project": {"_id": False, "version": True}},
            ],
            batchSize=FIRST_BATCH,
        )
        rows = await cursor.to_list(None)
        return await _versions_of([row["version"] for row in rows if "version" in row]) if rows else None

    async def names(self, tenant_id: str, package_ids: Collection[str] | None) -> AsyncIterator[Sequence[VersionName]]:
        """Yield the version names of all packages, or of these, ordered by package id."""
        async for documents in self._read(tenant_id, package_ids, NAME_FIELDS):
            yield [name_of(document) for document in documents]

    async def rule_versions(
        self, tenant_id: str, package_ids: Collection[str] | None
    ) -> AsyncIterator[Sequence[PackageVersion]]:
        """Yield the same versions with only the fields for winget's rules that a creation form may break."""
        async for documents in self._read(tenant_id, package_ids, {**NAME_FIELDS, **RULE_FIELDS}):
            yield [rule_version_of(document) for document in documents]

    async def versions(
        self, tenant_id: str, package_ids: Collection[str] | None
    ) -> AsyncIterator[Sequence[PackageVersion]]:
        """Yield the same versions with all their fields."""
        async for documents in self._read(tenant_id, package_ids):
            yield await _versions_of(documents)

    async def _read(
        self, tenant_id: str, package_ids: Collection[str] | None, projection: Document | None = None
    ) -> AsyncIterator[Sequence[Document]]:
        conditions: Document = {"tenant_id": tenant_id, "state": "active"}
        if package_ids is not None:
            conditions["package_id"] = {"$in": list(package_ids)}
        cursor = self._versions.find(conditions, projection, sort=[("package_id", ASCENDING)], batch_size=BATCH_SIZE)
        while documents := await cursor.to_list(YIELD_SIZE):
            yield documents

    async def names_of(self, tenant_id: str, uids: Sequence[str]) -> Sequence[VersionName]:
        conditions = {"tenant_id": tenant_id, "uid": {"$in": list(uids)}, "state": "active"}
        return [name_of(row) for row in await self._versions.find(conditions, NAME_FIELDS).to_list(None)]

    async def search(self, tenant_id: str, text: str, patterns: tuple[str, ...], limit: int) -> Sequence[VersionName]:
        """Return versions of packages of these patterns: those equal to the text first, then those that begin with it.

        In a text of several words, the last is the version, the others are part of the package's id.
        """
        package, _, version = map(re.escape, text.rpartition(" "))
        ids = [{"package_id": {"$regex": regex_of(patterns)}}, {"package_id": {"$regex": package, "$options": "i"}}]

        async def names(regex: str) -> Sequence[VersionName]:
            match = {"tenant_id": tenant_id, "$and": ids, "version": {"$regex": regex, "$options": "i"}}
            # The index keeps the order, so a query ends with its first rows.
            rows = self._versions.find({**match, "state": "active"}, NAME_FIELDS, hint=VERSION_INDEX)
            return [name_of(row) for row in await rows.sort(VERSION_INDEX).limit(limit).to_list(limit)]

        found = await asyncio.gather(names(f"^{version}$"), names(f"^{version}"), names(version))
        return list({name.uid: name for part in found for name in part}.values())[:limit]

    async def hide(self, tenant_id: str, package_id: str, uids: Sequence[str]) -> None:
        """Begin to delete all of these versions. Raises VersionNotFound if the package lacks one of them."""
        conditions: Document = {
            "tenant_id": tenant_id,
            "package_id": package_id,
            "uid": {"$in": list(uids)},
            "state": {"$in": ["active", "deleting"]},
        }
        existing = {document["uid"] async for document in self._versions.find(conditions, {"uid": True})}
        for uid in uids:
            if uid not in existing:
                raise VersionNotFound(uid=uid)
        async with self._revisions.record_change(tenant_id, package_id):
            await self._versions.update_many({**conditions, "state": "active"}, HIDE)

    async def hide_all(self, tenant_id: str, package_uid: str) -> Sequence[str]:
        """Begin to delete all versions of a package, pending ones too. Return the uids of all hidden versions."""
        package: Document = {"tenant_id": tenant_id, "package_uid": package_uid}
        await self._versions.update_many({**package, "state": {"$in": ["pending", "active"]}}, HIDE)
        hidden = self._versions.find({**package, "state": {"$in": ["deleting", "abandoned"]}}, {"uid": True})
        return [document["uid"] async for document in hidden]

    async def remove(self, tenant_id: str, uids: Sequence[str]) -> None:
        """Delete hidden versions, except those hidden while pending or not yet audited: the sweeper deletes them."""
        hidden = {"tenant_id": tenant_id, "uid": {"$in": list(uids)}, "state": "deleting"}
        await self._versions.delete_many({**hidden, **_AUDITED})

    async def find_unfinished(self, age: int) -> Sequence[PendingVersion | HiddenVersion]:
        """Return the versions whose creation or deletion stopped more than `age` seconds ago."""
        documents = await self._versions.find(older_than(age)).to_list(None)
        return [
            _pending(document)
            if document["state"] == "pending"
            else HiddenVersion(document["tenant_id"], document["uid"])
            for document in documents
        ]

    async def delete_record(self, hidden: HiddenVersion) -> None:
        """Delete a hidden version, also an abandoned one."""
        await self._versions.delete_one(
            {"tenant_id": hidden.tenant_id, "uid": hidden.uid, "state": {"$in": ["deleting", "abandoned"]}, **_AUDITED}
        )


def older_than(age: int) -> Document:
    """Return a filter for unfinished operations older than `age` seconds, by the database's clock."""
    limit = {"$dateSubtract": {"startDate": "$$NOW", "unit": "second", "amount": age}}
    return {"halfway": True, "$expr": {"$lt": ["$changed_at", limit]}}


async def _versions_of(documents: Sequence[Document]) -> Sequence[PackageVersion]:
    if len(documents) <= MAX_IN_LOOP:
        return [version_of(document) for document in documents]
    return await asyncio.to_thread(lambda: [version_of(document) for document in documents])


def _pending(document: dict[str, Any]) -> PendingVersion:
    version, packages = version_of(document), tuple(document.get("limited_to", EVERY_PACKAGE))
    return PendingVersion(document["tenant_id"], document["package_uid"], version, packages=packages)


_UPLOADS = TypeAdapter(list[FinishedUpload])


class MongoUploadStore:
    """Stores the uploads of all tenants for `age` seconds."""

    def __init__(self, database: MongoDatabase, *, age: int) -> None:
        self._uploads = database["finished_uploads"]
        self._age = timedelta(seconds=age)

    async def note(self, tenant_id: str, upload: FinishedUpload) -> None:
        """Store an upload; a linked one stays linked."""
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "server_filename": upload.server_filename},
            {"$set": {**asdict(upload), "expires_at": self._expiry()}, "$setOnInsert": {"linked": False}},
            upsert=True,
        )

    async def link(self, tenant_id: str, server_filename: str) -> None:
        """Store that an upload belongs to a version; its event may still come."""
        await self._uploads.update_one(
            {"tenant_id": tenant_id, "server_filename": server_filename},
            {"$set": {"linked": True, "expires_at": self._expiry()}},
            upsert=True,
        )

    async def unlinked(self, tenant_id: str) -> Sequence[FinishedUpload]:
        """Return the uploads without a known version, the oldest first."""
        cursor = self._uploads.find(
            {"tenant_id": tenant_id, "linked": False}, sort=[("finished_at", ASCENDING), ("server_filename", ASCENDING)]
        )
        return _UPLOADS.validate_python(await cursor.to_list(None))

    def _expiry(self) -> datetime:
        return datetime.now(UTC) + self._age
