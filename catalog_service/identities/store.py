"""Finds the packages that have an identity, in the documents of packages and versions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pymongo import ASCENDING, IndexModel

from common.mongo import Document, Indexes, MongoDatabase

IDENTITY_INDEXES: Indexes = {
    "packages": [
        IndexModel([("tenant_id", ASCENDING), (field, ASCENDING)]) for field in ("identities", "local_identities")
    ],
    "versions": [IndexModel([("tenant_id", ASCENDING), ("identities", ASCENDING)])],
}


@dataclass(frozen=True)
class Owner:
    """A package that has an identity. `is_active` is false while it is hidden, or only pending versions have it."""

    package_id: str
    identity: str
    is_active: bool


class MongoIdentityStore:
    """Reads the identities of all packages and versions, also of inactive, pending and withheld ones."""

    def __init__(self, database: MongoDatabase) -> None:
        self._packages = database["packages"]
        self._versions = database["versions"]

    async def names_of(self, tenant_id: str, package_id: str) -> Sequence[str]:
        """Return the identities of a package's names."""
        key = {"tenant_id": tenant_id, "package_id": package_id}
        document = await self._packages.find_one(key, {"identities": True, "local_identities": True}) or {}
        return [*document.get("identities", ()), *document.get("local_identities", ())]

    async def owners(self, tenant_id: str, identities: Sequence[str]) -> Sequence[Owner]:
        """Return the packages that have one of these identities."""
        key = {"$in": list(identities)}
        packages: Document = {"tenant_id": tenant_id, "$or": [{"identities": key}, {"local_identities": key}]}
        versions: Document = {"tenant_id": tenant_id, "identities": key, "state": {"$in": ["pending", "active"]}}
        together = {"$setUnion": ["$identities", "$local_identities"]}
        rows = await asyncio.gather(
            self._packages.aggregate(
                [{"$match": packages}, {"$set": {"identities": together}}, *_by_package(key, {"$not": "$halfway"})]
            ).to_list(None),
            self._versions.aggregate([{"$match": versions}, *_by_package(key, {"$eq": ["$state", "active"]})]).to_list(
                None
            ),
        )
        return [Owner(**row["_id"], is_active=row["is_active"]) for collection in rows for row in collection]


def _by_package(key: Document, is_active: Document) -> Sequence[Document]:
    """Return the stages that make one row for each package and identity."""
    row = {"package_id": "$package_id", "identity": "$identities"}
    return [
        {"$project": {"package_id": True, "identities": True, "is_active": is_active}},
        {"$unwind": "$identities"},
        {"$match": {"identities": key}},
        {"$group": {"_id": row, "is_active": {"$max": "$is_active"}}},
    ]
