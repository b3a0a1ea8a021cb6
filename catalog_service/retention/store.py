"""The steps of retention in MongoDB, and which tenants are due.

Each step of a version is one conditional update of its document, and happens at most once. `retention_runs` has a
document for each tenant: the day of its last run, and the lease of the replica that runs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from uuid import uuid4

from pymongo import ReturnDocument

from catalog_service.catalog.revision_store import MongoRevisions
from catalog_service.model.releases import HISTORY_LIMIT, Reason, ReleaseStatus, audit_entry, stage_of
from catalog_service.model.versions import PackageDependency
from catalog_service.retention.plan import HIDDEN_PERIOD, StoredVersion
from catalog_service.versions.store import HIDE
from common.mongo import Document, MongoDatabase
from common.tenants import ALL_RINGS

Deletion = tuple[str, str, Sequence[Mapping[str, object]]]  # tenant, uid, entries for the audit log
BATCH = 1000  # versions read at once, because reading them takes the event loop's time
LEASE = 60_000  # milliseconds without renewal until another replica may take over
OPERATION = "retention"  # in the audit log
_TODAY = {"$dateTrunc": {"date": "$$NOW", "unit": "day"}}
_FIELDS = ("uid", "package_id", "version", "channel", "architecture", "size", "changed_at", "installer_url", "stage")
_PARTS = ("dependencies.packages", "release.pinned", "release.fence", "release.retired_at")
_PROJECTION = {"_id": False, **dict.fromkeys([*_FIELDS, *_PARTS], True)}
_IS_RETIRED = {"state": "active", "stage.status": ReleaseStatus.RETIRED}


class MongoRetentionStore:
    """Reads versions, and takes them from step to step."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._database = database
        self._versions = database["versions"]
        self._policies = database["release_policies"]
        self._runs = database["retention_runs"]
        self._revisions = revisions

    async def now(self) -> datetime:
        """The clock of the database."""
        now: datetime = (await self._database.command("hello", codec_options=self._database.codec_options))["localTime"]
        return now

    async def versions(self, tenant_id: str) -> Sequence[StoredVersion]:
        cursor = self._versions.find({"tenant_id": tenant_id, "state": "active"}, _PROJECTION, batch_size=BATCH)
        versions: list[StoredVersion] = []
        while documents := await cursor.to_list(BATCH):
            versions += map(_version_of, documents)
        return versions

    async def retire(self, tenant_id: str, versions: Sequence[tuple[StoredVersion, Reason]]) -> int:
        """Hide versions, each for a reason, unless they changed since they were read. Return their number."""
        stage = {"rings": {"$ifNull": ["$stage.rings", [ALL_RINGS]]}, "status": ReleaseStatus.RETIRED}
        unchanged: Document = {"state": "active", "release.pinned": {"$ne": True}}
        return await self._step(tenant_id, versions, unchanged, stage, "$$NOW")

    async def resume(self, tenant_id: str, versions: Sequence[StoredVersion]) -> int:
        """Offer retired versions again, unless they changed. Return their number."""
        stage = {"rings": "$stage.rings", "status": ReleaseStatus.ACTIVE}
        return await self._step(tenant_id, [(version, Reason()) for version in versions], _IS_RETIRED, stage, None)

    async def begin_deletion(self, tenant_id: str, version: StoredVersion) -> bool:
        """Begin to delete a version that was retired for the whole period, unless it changed since it was read."""
        period = HIDDEN_PERIOD.total_seconds() * 1000
        is_over = {"$lte": [{"$add": ["$release.retired_at", period]}, "$$NOW"]}
        query = {"tenant_id": tenant_id, "uid": version.uid, "release.fence": version.fence, **_IS_RETIRED}
        record = {"$set": {"release": {"$mergeObjects": ["$release", _record(version, "deleted", Reason())]}}}
        async with self._revisions.record_change(tenant_id, version.package_id):
            result = await self._versions.update_one({**query, "$expr": is_over}, [record, *HIDE])
        return bool(result.modified_count)

    async def unrecorded_deletions(self) -> Sequence[Deletion]:
        """Return the deletions of all tenants that the audit log does not have yet."""
        query = {"halfway": True, "state": "deleting", "release.unaudited.0": {"$exists": True}}
        cursor = self._versions.find(query, {"tenant_id": True, "uid": True, "release.unaudited": True})
        return [(row["tenant_id"], row["uid"], row["release"]["unaudited"]) async for row in cursor]

    async def mark_recorded(self, tenant_id: str, uid: str) -> None:
        """Note that the audit log has the deletion of a version; its document may be removed now."""
        query = {"tenant_id": tenant_id, "uid": uid, "state": "deleting"}
        await self._versions.update_one(query, {"$set": {"release.unaudited": []}})

    async def acquire_run(self) -> tuple[str, str] | None:
        """Lease a tenant that had no run today; returns it and the token of the lease. A new tenant is due tomorrow."""
        async for policy in self._policies.find({"retention.0": {"$exists": True}}, {"tenant_id": True}):
            await self._runs.update_one(
                {"tenant_id": policy["tenant_id"]}, [{"$set": {"day": {"$ifNull": ["$day", _TODAY]}}}], upsert=True
            )
        is_free = {"$lt": [{"$ifNull": ["$until", 0]}, "$$NOW"]}
        token = uuid4().hex
        document = await self._runs.find_one_and_update(
            {"$expr": {"$and": [{"$lt": ["$day", _TODAY]}, is_free]}},
            [{"$set": {"token": token, "until": {"$add": ["$$NOW", LEASE]}}}],
            return_document=ReturnDocument.AFTER,
        )
        return (document["tenant_id"], token) if document else None

    async def renew_run(self, tenant_id: str, token: str) -> bool:
        """Renew a lease; False if another replica has it."""
        return await self._change_run(tenant_id, token, {"until": {"$add": ["$$NOW", LEASE]}})

    async def end_run(self, tenant_id: str, token: str, day: datetime) -> None:
        """Record that the run of a day is done."""
        await self._change_run(tenant_id, token, {"day": day, "until": "$$REMOVE", "token": "$$REMOVE"})

    async def _change_run(self, tenant_id: str, token: str, fields: Document) -> bool:
        query = {"tenant_id": tenant_id, "token": token}
        return (await self._runs.update_one(query, [{"$set": fields}])).matched_count == 1

    async def _step(
        self,
        tenant_id: str,
        versions: Sequence[tuple[StoredVersion, Reason]],
        condition: Document,
        stage: Document,
        retired_at: str | None,
    ) -> int:
        changed = 0
        for package_id, group in groupby(sorted(versions, key=_package_of), key=_package_of):
            async with self._revisions.record_change(tenant_id, package_id):
                for version, reason in group:
                    record = _record(version, "resumed" if version.is_retired else "retired", reason)
                    release = {"$mergeObjects": ["$release", record, {"retired_at": retired_at}]}
                    result = await self._versions.update_one(
                        {"tenant_id": tenant_id, "uid": version.uid, "release.fence": version.fence, **condition},
                        [{"$set": {"stage": stage, "release": release}}],
                    )
                    changed += result.modified_count
        return changed


def _package_of(change: tuple[StoredVersion, Reason]) -> str:
    return change[0].package_id


def _record(version: StoredVersion, event: str, reason: Reason) -> Document:
    """The fields of a release after a step: releases tell upload_service and the audit log of it, and try again."""
    target = {"package_id": version.package_id, "version": version.version, "uid": version.uid, "step": event}
    target |= {"reason": reason.text} if reason.codes else {}
    at = {"$dateToString": {"date": "$$NOW", "format": "%Y-%m-%dT%H:%M:%S.%LZ"}}
    entry = {"$mergeObjects": [{"$literal": audit_entry("", OPERATION, target)}, {"at": at}]}
    recorded = {"$literal": asdict(reason)}
    line = {"at": "$$NOW", "event": event, "by": "", "ring": "", "reason": recorded}
    history = {"$concatArrays": [{"$ifNull": ["$release.history", []]}, [line]]}
    return {
        "fence": {"$add": [{"$ifNull": ["$release.fence", 0]}, 1]},
        "due": "$$NOW",
        "is_untold": not version.is_external,
        "reason": recorded,
        "history": {"$slice": [history, -HISTORY_LIMIT]},
        "unaudited": {"$concatArrays": [{"$ifNull": ["$release.unaudited", []]}, [entry]]},
    }


def _version_of(document: Document) -> StoredVersion:
    release = document.get("release", {})
    return StoredVersion(
        uid=document["uid"],
        package_id=document["package_id"],
        version=document["version"],
        channel=document["channel"],
        architecture=document["architecture"],
        size=document["size"],
        published_at=document.get("changed_at"),
        is_external=bool(document.get("installer_url")),
        dependencies=tuple(PackageDependency(**each) for each in document["dependencies"]["packages"]),
        stage=stage_of(document.get("stage")),
        is_pinned=release.get("pinned", False),
        fence=release.get("fence"),
        retired_at=release.get("retired_at"),
    )
