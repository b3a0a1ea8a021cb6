"""Revisions in MongoDB: each write that the catalog shows gives it a new revision, with the changed package.

A write opens a change, writes, and then closes the change. After a crash in between, the change stays open, and every
reader reads its package again instead of showing an old state. A document for each tenant has the open changes, by a
token each. If a writer died, the first reader a minute later closes its change.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument

from common.errors import Problem
from common.mongo import Document, MongoDatabase

EVERY_PACKAGE = ""  # in place of a package id: readers read the whole catalog again


@dataclass(frozen=True)
class Change:
    """A package that a write changed, or `EVERY_PACKAGE`, and the revision after the write."""

    revision: str
    package_id: str


@dataclass(frozen=True)
class CatalogState:
    """A catalog's revision, the latest changes up to it, and the packages with open changes."""

    revision: str
    latest: Sequence[Change] = ()
    changing_ids: Set[str] = frozenset()

    @property
    def stable_revision(self) -> str:
        """The revision, or "" while packages are being changed: no revision names what a reader finds then."""
        return "" if self.changing_ids else self.revision

    def since(self, revision: str) -> Set[str] | None:
        """Return the packages that may have changed since a revision, None if that may be all."""
        if EVERY_PACKAGE in self.changing_ids:
            return None
        if revision == self.revision:
            return self.changing_ids
        for position, change in enumerate(self.latest):
            if change.revision == revision:
                return self.changing_ids | {later.package_id for later in self.latest[position + 1 :]}
        return None


# Returns the state of a tenant's catalog, without the latest changes if its revision is the second argument.
StateReader = Callable[[str, str], Awaitable[CatalogState]]


LATEST = 256  # changes in a document; a reader that is further behind reads the whole catalog
TIMEOUT = timedelta(seconds=60)  # a write ends long before
InvalidateDuring = Callable[[str], AbstractAsyncContextManager[Any]]


class MongoRevisions:
    """The revisions of all tenants' catalogs."""

    def __init__(self, database: MongoDatabase, invalidate_during: InvalidateDuring = nullcontext) -> None:
        """`invalidate_during` is entered around each change of a tenant's catalog, for the caches of other services."""
        self._revisions = database["revisions"]
        self.invalidate_during = invalidate_during

    @asynccontextmanager
    async def record_change(self, tenant_id: str, package_id: str) -> AsyncIterator[None]:
        """Enter this around a write that changes a package in the catalog, or `EVERY_PACKAGE`.

        After a Problem nothing was written. After any other error that is unknown, so the change stays open.
        """
        token = uuid4().hex
        async with self.invalidate_during(tenant_id):
            await self._revisions.update_one(
                {"tenant_id": tenant_id},
                {
                    "$set": {f"open.{token}.package_id": package_id},
                    "$currentDate": {f"open.{token}.since": True},
                    "$setOnInsert": _first_revision(),
                },
                upsert=True,
            )
            try:
                yield
            except Problem:
                await self._revisions.update_one({"tenant_id": tenant_id}, {"$unset": {f"open.{token}": ""}})
                raise
            # An upsert, because the tenant may have been removed meanwhile.
            await self._revisions.update_one({"tenant_id": tenant_id}, _close(token, package_id), upsert=True)

    async def state(self, tenant_id: str, known: str) -> CatalogState:
        """Return the state of a tenant's catalog, without the latest changes if its revision is `known`."""
        projection = {
            "_id": False,
            "revision": True,
            "open": True,
            "now": "$$NOW",
            "latest": {"$cond": [{"$eq": ["$revision", known]}, [], "$latest"]},
        }
        # The first reader of an unchanged catalog gives it a revision.
        document = await self._revisions.find_one({"tenant_id": tenant_id}, projection) or (
            await self._revisions.find_one_and_update(
                {"tenant_id": tenant_id},
                {"$setOnInsert": _first_revision()},
                projection,
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        )
        open_changes = document.get("open", {})
        for token, change in open_changes.items():
            if change["since"] < document["now"] - TIMEOUT:
                await self._revisions.update_one(
                    {"tenant_id": tenant_id, f"open.{token}": {"$exists": True}}, _close(token, change["package_id"])
                )
        return CatalogState(
            revision=document["revision"],
            latest=[Change(**change) for change in document.get("latest", [])],
            changing_ids=frozenset(change["package_id"] for change in open_changes.values()),
        )


def _first_revision() -> Document:
    # It is among the latest, so that a reader at this revision finds the first change.
    revision = uuid4().hex
    return {"revision": revision, "latest": [{"revision": revision, "package_id": EVERY_PACKAGE}]}


def _close(token: str, package_id: str) -> Document:
    # Not the token: if another reader closed this change already, its revision exists.
    revision = uuid4().hex
    change = {"revision": revision, "package_id": package_id}
    closed: Document = {"$unset": {f"open.{token}": ""}, "$set": {"revision": revision}}
    if package_id == EVERY_PACKAGE:  # No earlier revision is among the latest.
        return {**closed, "$set": {"revision": revision, "latest": [change]}}
    return {**closed, "$push": {"latest": {"$each": [change], "$slice": -LATEST}}}
