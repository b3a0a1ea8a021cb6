"""The releases of all tenants' versions in MongoDB: `stage` and `release` in the version's document.

`package_signers` has the last signer of each package with deleted versions, by the key of its id. It stays when the
package is deleted: a new package with this id has the same signer.

The rank of a version says how much its signer counts. Versions that passed a signature gate, or are in all rings, come
first, the last published one before the others, and withdrawn ones after them. All other versions have rank 0.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pymongo import ASCENDING, DESCENDING, IndexModel, ReturnDocument
from pymongo.errors import DuplicateKeyError

from catalog_service.catalog.revision_store import EVERY_PACKAGE, MongoRevisions
from catalog_service.model.packages import VersionExists, VersionNotFound, id_key
from catalog_service.model.releases import (
    BEGIN,
    DUE_NOW,
    ReleaseStatus,
    Stage,
    VersionRelease,
    release_document,
    version_release_of,
)
from catalog_service.model.versions import VersionEdit
from catalog_service.releases.gates import Policy
from common.errors import Conflict
from common.mongo import Document, MongoDatabase
from common.tenants import ALL_RINGS

FIELDS = ("tenant_id", "uid", "package_id", "version", "channel", "architecture", "server_filename", "sha256")
PROJECTION = {
    "_id": False,
    **dict.fromkeys((*FIELDS, "published_by", "stage", "release"), True),
    "published_at": "$changed_at",
    "is_deleted": {"$eq": ["$state", "deleting"]},
    "now": "$$NOW",
}
RETRY = timedelta(seconds=1)
EARLIER = 10  # versions whose signer a new one is compared with
WITHDRAWN = [status.value for status in ReleaseStatus if Stage((), status).is_withdrawn]
# Retention withdraws versions without doubt about their signers.
DOUBTED = [ReleaseStatus.HELD.value, ReleaseStatus.ROLLED_BACK.value]
HAS_ENTERED: Document = {
    "server_filename": {"$ne": ""},
    "$or": [
        {"stage": None},
        {"stage.rings.0": {"$exists": True}},
        {"stage.status": {"$in": WITHDRAWN}},
        {"release.signer_counts": True},  # It was rolled back and resumed, and waits before the first ring.
    ],
}
# Versions that are being deleted, and whose signers may count. They are deleted after `is_signer_remembered` is set.
UNREMEMBERED: Document = {"state": "deleting", "is_signer_remembered": {"$ne": True}, **HAS_ENTERED}
TIER = 1 << 44  # more than any time in milliseconds
_IN_ALL_RINGS = {"$in": [ALL_RINGS, {"$ifNull": ["$stage.rings", [ALL_RINGS]]}]}
_PUBLISHED = {"$toLong": {"$ifNull": ["$published_at", "$changed_at", datetime.fromtimestamp(0, UTC)]}}
_TIER = {"$cond": [{"$in": ["$stage.status", DOUBTED]}, TIER, 2 * TIER]}
RANK: Document = {
    "$cond": [
        {"$or": [_IN_ALL_RINGS, {"$eq": ["$release.signer_counts", True]}]},
        {"$add": [_TIER, _PUBLISHED]},
        0,
    ]
}
RANKED: Sequence[Document] = [
    {"$project": {"_id": False, **dict.fromkeys(("uid", "package_id", "sha256"), True), "rank": RANK}},
    {"$sort": {"rank": DESCENDING, "uid": ASCENDING}},
]
RELEASE_INDEXES = [
    IndexModel([("tenant_id", ASCENDING), ("changed_at", DESCENDING)]),
    IndexModel(
        [("tenant_id", ASCENDING), ("release.in_flight", ASCENDING), ("changed_at", DESCENDING)],
        partialFilterExpression={"release.in_flight": True},
    ),
    IndexModel([("release.due", ASCENDING)], partialFilterExpression={"release.due": {"$type": "date"}}),
]


@dataclass(frozen=True)
class ReleaseQuery:
    """A page of releases: those in flight or all, of one package or of all (""), the newest first.

    With `uids`, only these.
    """

    in_flight: bool
    package_id: str
    offset: int
    limit: int
    uids: Sequence[str] = ()


@dataclass(frozen=True)
class EarlierVersion:
    """A version that has entered a ring. The signer of the highest `rank` is the package's."""

    uid: str
    package_id: str
    sha256: str
    rank: int


@dataclass(frozen=True)
class LastSigner:
    """The signer of the highest rank among a package's deleted versions, None if it is not known."""

    signer: str | None
    rank: int


class ReleaseChanged(Conflict):
    """Another process changed the version since it was read."""

    code = "release_changed"
    text = "The version changes at this moment; try again."


class MongoReleaseStore:
    """Reads and changes releases. Each change is one conditional update of one document."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._versions = database["versions"]
        self._signers = database["package_signers"]
        self._revisions = revisions

    async def find(self, tenant_id: str, uid: str) -> VersionRelease:
        """Raises VersionNotFound."""
        document = await self._versions.find_one({"tenant_id": tenant_id, "uid": uid, "state": "active"}, PROJECTION)
        if document is None:
            raise VersionNotFound(uid=uid)
        return version_release_of(document)

    async def save(self, before: VersionRelease, after: VersionRelease) -> VersionRelease:
        """Replace a version's stage and record, and return the version as it is stored.

        Raises ReleaseChanged if another process changed them since.
        """
        # A pin changes what retention does at a revision.
        if (before.stage, before.release.pinned) == (after.stage, after.release.pinned):
            return await self._replace(before, after)
        async with self._revisions.record_change(before.tenant_id, before.package_id):
            return await self._replace(before, after)

    async def save_edited(self, before: VersionRelease, after: VersionRelease, edit: VersionEdit) -> VersionRelease:
        """Replace a version's record together with its release, as `save` does.

        Raises VersionExists if another version of the package has the new installer key.
        """
        fields: Document = {name: {"$literal": value} for name, value in edit.changes.items()}
        fields["installer_key"] = key = {"$literal": edit.after.installer_key}
        is_by_version = {"$eq": ["$version_key", "$version"]}
        fields["version_key"] = {"$cond": [is_by_version, "$version_key", key]}
        async with self._revisions.record_change(before.tenant_id, before.package_id):
            try:
                return await self._replace(before, after, {"$set": fields})
            except DuplicateKeyError:
                raise VersionExists(version=before.version) from None

    async def change_package(
        self,
        tenant_id: str,
        package_id: str,
        fences: Mapping[str, int],
        step: Callable[[VersionRelease], VersionRelease],
        *changes: Document,
    ) -> Sequence[str]:
        """Take a step with versions of a package that still have these fences, and return the uids of the changed ones.

        `changes` are further stages of the update.
        """
        changed = []
        async with self._revisions.record_change(tenant_id, package_id):
            for uid, fence in fences.items():
                with suppress(VersionNotFound, ReleaseChanged):
                    before = await self.find(tenant_id, uid)
                    after = step(before)
                    if before.release.fence == fence and after is not before:
                        await self._replace(before, after, *changes)
                        changed.append(uid)
        return changed

    async def mark_told(self, version: VersionRelease) -> None:
        """Note that upload_service knows whether it must withhold the file, unless the version changed since."""
        key = {"tenant_id": version.tenant_id, "uid": version.uid, "release.fence": version.release.fence}
        await self._versions.update_one(key, {"$set": {"release.is_untold": False}})

    async def save_audited(self, version: VersionRelease) -> None:
        """Store the changes of a version being deleted that the audit log lacks. With any, it is due again soon."""
        entries = version.release.unaudited
        fields = {"release.unaudited": entries, "release.due": version.now + RETRY if entries else None}
        key = {"tenant_id": version.tenant_id, "uid": version.uid, "state": "deleting"}
        await self._versions.update_one(key, {"$set": fields})

    async def _replace(self, before: VersionRelease, after: VersionRelease, *changes: Document) -> VersionRelease:
        was_withheld = before.is_withheld and not before.release.is_open
        is_untold = not after.is_external and (after.release.is_untold or was_withheld is not after.is_withheld)
        fence, in_flight = before.release.fence + 1, after.is_in_flight
        release = replace(after.release, fence=fence, in_flight=in_flight, is_untold=is_untold, is_open=False)
        if release.unaudited or release.is_untold:  # The loop must deliver them.
            again = after.now + RETRY
            release = replace(release, due=min(release.due or again, again))
        fields: Document = {"release": {"$literal": release_document(release)}}
        if after.stage is not None:
            fields["stage"] = {"$literal": {"rings": list(after.stage.rings), "status": after.stage.status.value}}
        fence_before = before.release.fence or None  # None matches a document without the field, too.
        key = {"tenant_id": before.tenant_id, "uid": before.uid, "state": "active", "release.fence": fence_before}
        if not (await self._versions.update_one(key, [{"$set": fields}, *changes])).matched_count:
            raise ReleaseChanged
        return replace(after, release=release)

    @staticmethod
    async def withhold_again(database: MongoDatabase, tenant_id: str) -> None:
        """Tell upload_service again about all withdrawn versions of a tenant, whose files it got again."""
        await database["versions"].update_many(
            {"tenant_id": tenant_id, "stage.status": {"$in": WITHDRAWN}},
            {"$set": {"release.is_untold": True}, "$inc": {"release.fence": 1}, "$currentDate": {"release.due": True}},
        )

    async def due(self, limit: int) -> Sequence[VersionRelease]:
        """Return the versions of all tenants that are due, the longest first; also those that are being deleted."""
        conditions: Document = {"state": {"$in": ["active", "deleting"]}, "release.due": {"$type": "date"}}
        conditions["$expr"] = {"$lte": ["$release.due", "$$NOW"]}
        cursor = self._versions.find(conditions, PROJECTION, sort=[("release.due", ASCENDING)], limit=limit)
        return [version_release_of(document) async for document in cursor]

    async def page(self, tenant_id: str, query: ReleaseQuery) -> tuple[Sequence[VersionRelease], int]:
        """Return the newest versions first, and the number of all of them."""
        conditions: Document = {"tenant_id": tenant_id, "state": "active"}
        conditions |= {"release.in_flight": True} if query.in_flight else {}
        conditions |= {"package_id": query.package_id} if query.package_id else {}
        conditions |= {"uid": {"$in": list(query.uids)}} if query.uids else {}
        order = [("changed_at", DESCENDING), ("uid", ASCENDING)]
        cursor = self._versions.find(conditions, PROJECTION, sort=order, skip=query.offset, limit=query.limit)
        versions = [version_release_of(document) async for document in cursor]
        return versions, await self._versions.count_documents(conditions)

    async def earlier(self, version: VersionRelease) -> tuple[Sequence[EarlierVersion], LastSigner | None]:
        """Return the other versions of the package that entered a ring, and the last signer of deleted ones.

        These are the at most `EARLIER` versions of the highest ranks, the highest first.
        """
        package = {"tenant_id": version.tenant_id, "package_id": version.package_id, "uid": {"$ne": version.uid}}
        conditions = {**package, **UNREMEMBERED, "state": {"$in": ["active", "deleting"]}}
        stages: list[Document] = [{"$match": conditions}, *RANKED, {"$limit": EARLIER}]
        versions = [EarlierVersion(**row) async for row in self._versions.aggregate(stages)]
        # Read after the versions, so that a signer is found that moves from there to here.
        return versions, await self.last_signer(version.tenant_id, version.package_id)

    async def last_signer(self, tenant_id: str, package_id: str) -> LastSigner | None:
        """Return the signer of the deleted versions of a package, None if no signed one was deleted."""
        key = {"tenant_id": tenant_id, "id_key": id_key(package_id)}
        document = await self._signers.find_one(key)
        return LastSigner(document["signer"], document["rank"]) if document else None

    async def remember_signer(self, tenant_id: str, package_id: str, signer: LastSigner) -> LastSigner:
        """Remember the signer of a deleted version if none of a higher rank is. Return the one that is remembered.

        Two signers of one rank are one that is not known. The order of calls, and repeating them, changes nothing.
        """
        name = {"$literal": signer.signer}
        is_kept = {"$or": [{"$lt": [signer.rank, "$rank"]}, {"$eq": [name, "$signer"]}]}
        branches = [{"case": {"$gt": [signer.rank, "$rank"]}, "then": name}, {"case": is_kept, "then": "$signer"}]
        fields = {"signer": {"$switch": {"branches": branches, "default": None}}}
        document = await self._signers.find_one_and_update(
            {"tenant_id": tenant_id, "id_key": id_key(package_id)},
            [{"$set": {**fields, "rank": {"$max": ["$rank", signer.rank]}}}],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return LastSigner(document["signer"], document["rank"])

    async def unremembered(self, tenant_id: str, uids: Sequence[str]) -> Sequence[EarlierVersion]:
        """Return those of these versions that are being deleted and whose signers count, the highest ranks first."""
        key = {"tenant_id": tenant_id, "uid": {"$in": list(uids)}}
        stages: list[Document] = [{"$match": {**key, **UNREMEMBERED}}, *RANKED]
        return [EarlierVersion(**row) async for row in self._versions.aggregate(stages)]

    async def mark_remembered(self, tenant_id: str, versions: Sequence[EarlierVersion]) -> None:
        """Note that the signers of versions are remembered, so their files may be deleted."""
        key = {"tenant_id": tenant_id, "uid": {"$in": [version.uid for version in versions]}, "state": "deleting"}
        await self._versions.update_many(key, {"$set": {"is_signer_remembered": True}})

    async def waiting(self) -> Mapping[str, int]:
        """Return the number of versions of all tenants that wait before a ring, by the gate."""
        stages: list[Document] = [
            {"$match": {"tenant_id": {"$gt": ""}, "release.in_flight": True, "stage.status": "active"}},
            {"$unwind": "$release.waiting"},
            {"$group": {"_id": "$release.waiting", "versions": {"$sum": 1}}},
        ]
        return {row["_id"]: row["versions"] async for row in self._versions.aggregate(stages)}


UNFINISHED: Document = {"halfway": True, "changed_at": {"$type": "date"}}  # An index has only these versions.
UNTOLD = {"release.is_untold": True}
PARTS: Document = {"_id": False, "tenant_id": False}  # of a policy's document


class PolicyChanged(Conflict):
    """Another edit changed the policy since it was read."""


class MongoPolicyStore:
    """Stores policies. A tenant without a document has no release control."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._policies = database["release_policies"]
        self._versions = database["versions"]
        self._revisions = revisions

    async def find(self, tenant_id: str) -> Policy:
        return Policy.model_validate(await self._policies.find_one({"tenant_id": tenant_id}, PARTS) or {})

    async def rings(self, tenant_id: str) -> Sequence[str]:
        """Return the tenant's rings in order; none without release control."""
        policy = await self.find(tenant_id)
        return policy.shown_rings

    async def edit(self, tenant_id: str, change: Callable[[Policy], Policy]) -> tuple[Policy, Policy]:
        """Change a policy; return it before and after. `change` is called again if another edit comes first.

        Raises what it raises.
        """
        while True:
            stored = await self._policies.find_one({"tenant_id": tenant_id}, PARTS)
            before = Policy.model_validate(stored or {})
            policy = change(before)
            key = {"tenant_id": tenant_id, **(stored or dict.fromkeys(Policy.model_fields))}
            with suppress(PolicyChanged):
                if before != policy and before.model_copy(update={"ring_rules": policy.ring_rules}) == policy:
                    async with self._revisions.invalidate_during(tenant_id):  # No version has other rings now.
                        await self._replace(key, policy)
                else:
                    await self._replace_for_versions(key, policy)
                return before, policy

    async def _replace(self, key: Document, policy: Policy) -> None:
        """Replace the policy that `key` has whole. Raises PolicyChanged."""
        try:
            await self._policies.update_one(key, {"$set": policy.model_dump(mode="json")}, upsert=True)
        except DuplicateKeyError:  # The policy is not the one before any more.
            raise PolicyChanged from None

    async def _replace_for_versions(self, key: Document, policy: Policy) -> None:
        """Replace a policy. All versions in flight are looked at again.

        Every catalog and index is read again, because each version may have other rings now.
        """
        tenant_id = key["tenant_id"]
        async with self._revisions.record_change(tenant_id, EVERY_PACKAGE):
            await self._replace(key, policy)
            if policy.is_controlled:  # The activation of such a version may have read the earlier policy.
                pending = {"tenant_id": tenant_id, "state": "pending", **UNFINISHED}
                await self._versions.update_many(pending, {"$set": {**BEGIN, **UNTOLD}, "$currentDate": DUE_NOW})
            # The fence makes a change fail that read the earlier policy.
            in_flight = {"tenant_id": tenant_id, "release.in_flight": True}
            again: Document = {"$set": UNTOLD, "$inc": {"release.fence": 1}, "$currentDate": DUE_NOW}
            await self._versions.update_many(in_flight, again)
