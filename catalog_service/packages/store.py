"""Packages in MongoDB, one document each; `halfway` marks a package whose deletion has begun."""

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from pydantic import TypeAdapter
from pymongo import ASCENDING, DESCENDING
from pymongo.errors import DuplicateKeyError

from catalog_service.catalog.revision_store import MongoRevisions
from catalog_service.model.manifest_fields import is_set
from catalog_service.model.packages import (
    Order,
    Package,
    PackageChanged,
    PackageChanges,
    PackageExists,
    PackageNotFound,
    PackageQuery,
    PackageSummary,
    id_key,
    package_document,
)
from catalog_service.versions.store import FIRST_BATCH, older_than
from common.auth.roles import regex_of
from common.mongo import Document, MongoDatabase

BATCH_SIZE = 2000  # packages of one server batch
YIELD_SIZE = 256  # packages yielded at once
_PACKAGE = TypeAdapter(Package)
FIELD_OF = {Order.ID: "package_id", Order.NAME: "name", Order.PUBLISHER: "publisher", Order.ACTIVE: "active"}
_NAMES = ("package_id", "name")
SUMMARY_FIELDS = tuple(FIELD_OF.values())
SUMMARY_INDEX = {"tenant_id": ASCENDING, "halfway": ASCENDING, **dict.fromkeys(SUMMARY_FIELDS, ASCENDING)}


class MongoPackageStore:
    """The packages of all tenants. Only `begin_deletion` finds a package whose deletion has begun."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._packages = database["packages"]
        self._revisions = revisions

    async def add(self, tenant_id: str, package: Package) -> None:
        """Raises PackageExists."""
        async with self._revisions.record_change(tenant_id, package.package_id):
            try:
                await self._packages.insert_one({"tenant_id": tenant_id, "halfway": False, **package_document(package)})
            except DuplicateKeyError:
                raise await self._exists(tenant_id, package.package_id) from None

    async def add_hidden(self, tenant_id: str, package: Package) -> None:
        """Add a package that only `show` makes visible; the sweeper deletes it otherwise. Raises PackageExists."""
        document = {"halfway": True, **package_document(package)}
        key = {"tenant_id": tenant_id, "package_id": document.pop("package_id"), "package_uid": package.package_uid}
        del document["package_uid"]
        try:
            # An upsert, because an insert cannot take the database's clock.
            change = {"$setOnInsert": document, "$currentDate": {"changed_at": True}}
            await self._packages.update_one(key, change, upsert=True)
        except DuplicateKeyError:
            raise await self._exists(tenant_id, package.package_id) from None

    async def show(self, tenant_id: str, package: Package) -> None:
        """Make a hidden package visible. Raises PackageNotFound if it was deleted meanwhile."""
        key = {"tenant_id": tenant_id, "package_id": package.package_id, "package_uid": package.package_uid}
        async with self._revisions.record_change(tenant_id, package.package_id):
            shown = await self._packages.update_one(key, {"$set": {"halfway": False}, "$unset": {"changed_at": ""}})
            if not shown.matched_count:
                raise PackageNotFound(package_id=package.package_id)

    async def _exists(self, tenant_id: str, package_id: str) -> PackageExists:
        """Return the error with the id of the existing package, which may differ in letter case."""
        document = await self._packages.find_one({"tenant_id": tenant_id, "id_key": id_key(package_id)})
        return PackageExists(package_id=document["package_id"] if document else package_id)

    async def change(
        self, tenant_id: str, package_id: str, changes: PackageChanges, edits: int | None = None
    ) -> PackageChanges:
        """Return the old values of the changed fields.

        Raises PackageNotFound, or PackageChanged if the package has not the given number of edits.
        """
        key: Document = {"tenant_id": tenant_id, "package_id": package_id, "halfway": False}
        fence = {} if edits is None else {"edits": {"$in": [edits, edits or None]}}
        # Setting the id to its own value makes an edit without changes valid.
        change: Document = {"$inc": {"edits": 1}}
        change["$set"] = {"package_id": package_id, **changes.fields, **changes.identities}
        for name, value in changes.manifest.items():
            change.setdefault("$set" if is_set(value) else "$unset", {})[f"manifest.{name}"] = value
        async with self._revisions.record_change(tenant_id, package_id):
            document = await self._packages.find_one_and_update(
                {**key, **fence},
                change,
                {"_id": False, **dict.fromkeys([*change["$set"], *change.get("$unset", ())], True)},
            )
            if document is None:
                if fence and await self._packages.find_one(key, {"_id": True}):
                    raise PackageChanged
                raise PackageNotFound(package_id=package_id)
        before = document.get("manifest", {})
        return PackageChanges(
            **{name: document[name] for name in changes.fields},
            manifest={name: before.get(name, "") for name in changes.manifest},
        )

    async def find(self, tenant_id: str, package_id: str) -> Package | None:
        document = await self._packages.find_one({"tenant_id": tenant_id, "package_id": package_id, "halfway": False})
        return _PACKAGE.validate_python(document) if document else None

    async def summaries(self, tenant_id: str, query: PackageQuery) -> tuple[Sequence[PackageSummary], int]:
        """Return the packages of a page in order, and the number of packages on all pages."""
        match = _visible(tenant_id, query.package_ids or None)
        if query.active is not None:
            match["active"] = query.active
        sort_key = "$active" if query.order is Order.ACTIVE else {"$toLower": f"${FIELD_OF[query.order]}"}
        direction = DESCENDING if query.descending else ASCENDING
        pages = {
            "total": [{"$count": "packages"}],
            "page": [
                {"$sort": {"sort_key": direction, "package_id": direction}},
                {"$skip": query.offset},
                {"$limit": query.limit},
                {"$project": dict.fromkeys(SUMMARY_FIELDS, True)},
            ],
        }
        # The index covers this query, so no logo and no manifest is read. A condition on each field would read them.
        # No field holds the line break between them.
        pipeline: list[Document] = [
            {"$match": match},
            {"$project": {"_id": False, **dict.fromkeys(SUMMARY_FIELDS, True)}},
            {"$set": {"sort_key": sort_key, "text": {"$concat": ["$package_id", "\n", "$name", "\n", "$publisher"]}}},
            {"$match": {"text": {"$regex": re.escape(query.text), "$options": "i"}}},
            {"$facet": pages},
        ]
        (result,) = await self._packages.aggregate(pipeline).to_list(1)
        return [PackageSummary(**row) for row in result["page"]], sum(row["packages"] for row in result["total"])

    async def search(
        self, tenant_id: str, text: str, patterns: tuple[str, ...], limit: int
    ) -> Sequence[PackageSummary]:
        """Return the packages of these patterns with the text in id, name or publisher: equal and first parts first."""
        escaped = re.escape(text)

        def is_match(regex: str) -> Document:
            ids_and_names = [{"$regexMatch": {"input": f"${name}", "regex": regex, "options": "i"}} for name in _NAMES]
            return {"$or": ids_and_names}

        branches = [{"case": is_match(f"^{escaped}$"), "then": 0}, {"case": is_match(f"^{escaped}"), "then": 1}]
        any_field = [{name: {"$regex": escaped, "$options": "i"}} for name in (*_NAMES, "publisher")]
        # The index covers this query, too.
        pipeline: list[Document] = [
            {"$match": {**_visible(tenant_id, None), "package_id": {"$regex": regex_of(patterns)}}},
            {"$project": {"_id": False, **dict.fromkeys(SUMMARY_FIELDS, True)}},
            {"$match": {"$or": any_field}},
            {"$set": {"rank": {"$switch": {"branches": branches, "default": 2}}}},
            {"$sort": {"rank": ASCENDING, "package_id": ASCENDING}},
            {"$limit": limit},
            {"$unset": "rank"},
        ]
        return [PackageSummary(**row) for row in await self._packages.aggregate(pipeline).to_list(limit)]

    async def logos(self, tenant_id: str, package_ids: Collection[str]) -> Mapping[str, bytes]:
        """Return the logos, possibly empty, of those packages that exist."""
        fields = {"_id": False, "package_id": True, "logo": True}
        documents = self._packages.find(_visible(tenant_id, package_ids), fields)
        return {document["package_id"]: document.get("logo", b"") async for document in documents}

    async def ids(self, tenant_id: str, package_ids: Collection[str] | None = None) -> Sequence[str]:
        """Return the ids of all packages, or those of these ids that packages have."""
        fields = {"_id": False, "package_id": True}
        cursor = self._packages.find(_visible(tenant_id, package_ids), fields, batch_size=FIRST_BATCH)
        return [document["package_id"] for document in await cursor.to_list(None)]

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None, *, without: str
    ) -> AsyncIterator[Sequence[Package]]:
        """Yield all packages, or these, ordered by id; inactive ones too. `without` is a field that is not read."""
        conditions, order = _visible(tenant_id, package_ids), [("package_id", ASCENDING)]
        cursor = self._packages.find(conditions, {without: False}, sort=order, batch_size=BATCH_SIZE)
        while documents := await cursor.to_list(YIELD_SIZE):
            yield [_PACKAGE.validate_python(document) for document in documents]

    async def begin_deletion(self, tenant_id: str, package_id: str) -> str:
        """Hide the package and return its `package_uid`; may be repeated. Raises PackageNotFound."""
        async with self._revisions.record_change(tenant_id, package_id):
            document = await self._packages.find_one_and_update(
                {"tenant_id": tenant_id, "package_id": package_id},
                {"$set": {"halfway": True}, "$currentDate": {"changed_at": True}},
            )
            if document is None:
                raise PackageNotFound(package_id=package_id)
        return str(document["package_uid"])

    async def end_deletion(self, tenant_id: str, package_uid: str) -> None:
        await self._packages.delete_one({"tenant_id": tenant_id, "package_uid": package_uid, "halfway": True})

    async def find_unfinished(self, age: int) -> Sequence[tuple[str, str]]:
        """Return tenant and `package_uid` of the deletions that began more than `age` seconds ago."""
        documents = self._packages.find(older_than(age), {"tenant_id": True, "package_uid": True})
        return [(document["tenant_id"], document["package_uid"]) for document in await documents.to_list(None)]


def _visible(tenant_id: str, package_ids: Collection[str] | None) -> Document:
    """Return a filter for all packages, or these, except those whose deletion has begun."""
    ids = {} if package_ids is None else {"package_id": {"$in": list(package_ids)}}
    return {"tenant_id": tenant_id, "halfway": False, **ids}
