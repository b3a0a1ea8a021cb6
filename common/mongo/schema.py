"""The schema of a service's database: its migrations and indexes, and the outstanding ones.

Each service has a list of migrations, numbered from 1 on, and a database stores the number that it has reached. A
released migration is never changed, moved or removed.

A migration may be interrupted anywhere and is then run again, also on documents that are up to date. It must be safe
while the previous release still serves: each release reads what the other writes. Fields that only the previous release
needs are removed one release later.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motor.motor_asyncio import AsyncIOMotorCollection
from prometheus_client.core import Metric
from pymongo import ASCENDING, IndexModel

from common.mongo import Document, Indexes, MongoDatabase, long_timeout
from common.telemetry.metrics import Metrics, gauges

BATCH = 1000  # documents per update
COLLECTION = "schema"
NAME: Document = {"_id": "schema"}  # of its only document

Done = Callable[[int], None]


class SchemaError(Exception):
    """A database cannot be used as it is; the text is one line with the reason."""


class SchemaIsNewer(SchemaError):
    """A later version of this program has migrated the database."""

    def __init__(self, database: str, version: int, known: int) -> None:
        super().__init__(
            f"{database}: schema is newer than this program, {version} where it knows {known}; "
            "upgrade the program, or restore a backup from before"
        )


class Migrating(SchemaError):
    """Another process has the lease."""

    def __init__(self, database: str) -> None:
        super().__init__(f"{database}: another process is migrating it")


@dataclass(frozen=True)
class Migration:
    """One step. `name` tells operators its purpose; `work` reports the number of each batch of changed documents."""

    name: str
    work: Callable[[MongoDatabase, Done], Awaitable[None]]


@dataclass(frozen=True)
class Schema:
    """The migrations of a service in order, and its indexes, created last; a migration creates those that it needs."""

    migrations: Sequence[Migration]
    indexes: Indexes

    @property
    def version(self) -> int:
        """The number of an up-to-date database."""
        return len(self.migrations)


@dataclass(frozen=True)
class Outstanding:
    """The outstanding migrations with their numbers, and the missing indexes."""

    migrations: Sequence[tuple[int, Migration]]
    indexes: Indexes

    def sentences(self) -> list[str]:
        """Each step, for operators."""
        steps = [f"{number}: {migration.name}" for number, migration in self.migrations]
        return steps + [f"{len(models)} indexes of {collection}" for collection, models in self.indexes.items()]


async def version_of(database: MongoDatabase) -> int:
    """The number of the last migration that was done; 0 for none."""
    document = await database[COLLECTION].find_one(NAME, {"version": True})
    return document["version"] if document else 0


def register_version(metrics: Metrics, database: MongoDatabase) -> None:
    """Add the schema version to a service's metrics."""

    async def version() -> Sequence[Metric]:
        text = "The number of the last migration that was done to the service's database."
        number = await version_of(database)
        return [gauges("pkgrepo_schema_version", text, [(metrics.service, number)], label="service")]

    metrics.add_source("schema", version)


async def set_version(database: MongoDatabase, version: int) -> None:
    """Set the version of a database whose records were written while no service runs."""
    await database[COLLECTION].update_one(NAME, {"$set": {"version": version}}, upsert=True)


async def outstanding(database: MongoDatabase, schema: Schema) -> Outstanding:
    """The outstanding steps. Raises SchemaIsNewer."""
    reached = await version_of(database)
    if reached > schema.version:
        raise SchemaIsNewer(database.name, reached, schema.version)
    numbered = list(enumerate(schema.migrations, start=1))
    return Outstanding(numbered[reached:], await _missing(database, schema.indexes))


async def in_batches(
    collection: AsyncIOMotorCollection[Document], outdated: Document, change: Sequence[Mapping[str, Any]], done: Done
) -> None:
    """Update all documents that match `outdated`, in the order of their ids, with the stages of `change`."""
    after: Document = {}
    while True:
        with long_timeout():
            cursor = collection.find({"$and": [outdated, after]}, {"_id": True}).sort("_id", ASCENDING).limit(BATCH)
            ids = [document["_id"] for document in await cursor.to_list(None)]
            if not ids:
                return
            await collection.update_many({"$and": [outdated, {"_id": {"$in": ids}}]}, change)
        done(len(ids))
        after = {"_id": {"$gt": ids[-1]}}


async def _missing(database: MongoDatabase, indexes: Indexes) -> Indexes:
    """The indexes that are missing or different; the server refuses to create the latter, which makes them visible."""
    missing = {}
    for collection, models in indexes.items():
        existing = await database[collection].index_information()
        if absent := [model for model in models if not _is_same(model, existing.get(model.document["name"], {}))]:
            missing[collection] = absent
    return missing


def _is_same(model: IndexModel, existing: Mapping[str, Any]) -> bool:
    expected = {**model.document, "key": list(model.document["key"].items())}
    del expected["name"]
    return {name: value for name, value in existing.items() if name != "v"} == expected
