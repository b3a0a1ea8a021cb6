"""Revisions in MongoDB, one document for each tenant.

`open` has the changes that are announced and not settled, by a token each; one whose writer has died is settled by the
first reader that sees it a minute later, when nothing of it can be under way any more.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument

from catalog_service.revisions.model import Change, Standing
from common.errors import Problem
from common.mongo import Document, MongoDatabase

LATEST = 256  # changes that are kept: a reader that is further behind reads everything
TIMEOUT = timedelta(seconds=60)  # a write is done, or has failed, long before
Telling = Callable[[str], AbstractAsyncContextManager[Any]]


class MongoRevisions:
    """The revisions of all tenants' catalogs."""

    def __init__(self, database: MongoDatabase, telling: Telling = nullcontext) -> None:
        """`telling` a tenant is held around each change of its catalog, so that who remembers that knows of it."""
        self._revisions = database["revisions"]
        self._telling = telling

    @asynccontextmanager
    async def changing(self, tenant_id: str, package_id: str) -> AsyncIterator[None]:
        """To be held around a write that changes what the catalog shows of a package.

        A Problem says that nothing was written. After any other error that is not known, and the change stays open.
        """
        token = uuid4().hex
        async with self._telling(tenant_id):
            await self._revisions.update_one(
                {"tenant_id": tenant_id},
                {
                    "$set": {f"open.{token}.package_id": package_id},
                    "$currentDate": {f"open.{token}.since": True},
                    "$setOnInsert": _begun(),
                },
                upsert=True,
            )
            try:
                yield
            except Problem:
                await self._revisions.update_one({"tenant_id": tenant_id}, {"$unset": {f"open.{token}": ""}})
                raise
            # An upsert, in case that the tenant was forgotten meanwhile: what is written now is the start of a new one.
            await self._revisions.update_one({"tenant_id": tenant_id}, _settled(token, package_id), upsert=True)

    async def standing(self, tenant_id: str, known: str) -> Standing:
        """Where a tenant's catalog stands; without the latest changes where that is at the revision `known`."""
        shown = {
            "_id": False,
            "revision": True,
            "open": True,
            "now": "$$NOW",
            "latest": {"$cond": [{"$eq": ["$revision", known]}, [], "$latest"]},
        }
        # The first reader of a catalog that nobody has changed yet gives it a revision.
        found = await self._revisions.find_one({"tenant_id": tenant_id}, shown) or (
            await self._revisions.find_one_and_update(
                {"tenant_id": tenant_id},
                {"$setOnInsert": _begun()},
                shown,
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        )
        unsettled = found.get("open", {})
        for token, change in unsettled.items():
            if change["since"] < found["now"] - TIMEOUT:
                await self._revisions.update_one(
                    {"tenant_id": tenant_id, f"open.{token}": {"$exists": True}}, _settled(token, change["package_id"])
                )
        return Standing(
            revision=found["revision"],
            latest=[Change(**change) for change in found.get("latest", [])],
            unsettled=frozenset(change["package_id"] for change in unsettled.values()),
        )


def _begun() -> Document:
    # Among the latest, so that the first change after it is told from it.
    revision = uuid4().hex
    return {"revision": revision, "latest": [{"revision": revision, "package_id": ""}]}


def _settled(token: str, package_id: str) -> Document:
    # Never the token: where another has settled this already, that revision is one of before.
    revision = uuid4().hex
    change = {"revision": revision, "package_id": package_id}
    return {
        "$unset": {f"open.{token}": ""},
        "$set": {"revision": revision},
        "$push": {"latest": {"$each": [change], "$slice": -LATEST}},
    }
