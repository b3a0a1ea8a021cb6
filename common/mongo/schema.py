"""What a service's database is to look like, and what is left to be done until it does.

Each service has a list of migrations; the place in it, from 1 on, is the number, and a database knows the number that
it has reached. One that was released is never changed, moved or removed.

A migration may be cut short anywhere and is run again then, may be run on what is up to date already, and must be safe
while the release before still serves: that one goes on reading what comes of it, and the new one goes on reading what
that one writes meanwhile. What only the release before needs goes a release later, by a migration of that one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motor.motor_asyncio import AsyncIOMotorCollection
from prometheus_client.core import Metric
from pymongo import ASCENDING, IndexModel

from common.mongo import Document, Indexes, MongoDatabase, long_timeout
from common.telemetry.metrics import Metrics, gauges

BATCH = 1000  # documents that are changed at once
COLLECTION = "schema"
NAME: Document = {"_id": "schema"}  # of its one document

Done = Callable[[int], None]


class SchemaError(Exception):
    """A database cannot be used as it is; the text says why, in one line."""


class SchemaIsNewer(SchemaError):
    """A later version of this program has been at work."""

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
    """One step. `name` says to operators what it is for; `work` tells how many more documents it has changed."""

    name: str
    work: Callable[[MongoDatabase, Done], Awaitable[None]]


@dataclass(frozen=True)
class Schema:
    """The migrations of a service in their order, and its indexes, which are made after them.

    A migration that cannot do without an index makes it itself.
    """

    migrations: Sequence[Migration]
    indexes: Indexes

    @property
    def version(self) -> int:
        """The number that a database has when all was done."""
        return len(self.migrations)


@dataclass(frozen=True)
class Outstanding:
    """What is left to be done: migrations with their numbers, and indexes that are not there."""

    migrations: Sequence[tuple[int, Migration]]
    indexes: Indexes

    def sentences(self) -> list[str]:
        """Each step as an operator reads it."""
        steps = [f"{number}: {migration.name}" for number, migration in self.migrations]
        return steps + [f"{len(models)} indexes of {collection}" for collection, models in self.indexes.items()]


async def version_of(database: MongoDatabase) -> int:
    """The number of the last migration that was done; 0 where none was."""
    found = await database[COLLECTION].find_one(NAME, {"version": True})
    return found["version"] if found else 0


def tell_version(metrics: Metrics, database: MongoDatabase) -> None:
    """Let a service's figures tell it too."""

    async def version() -> Sequence[Metric]:
        told = "The number of the last migration that was done to the service's database."
        return [
            gauges("pkgrepo_schema_version", told, [(metrics.service, await version_of(database))], label="service")
        ]

    metrics.add_source("schema", version)


async def set_version(database: MongoDatabase, version: int) -> None:
    """Say what the records of a database are, which were put there while no service runs."""
    await database[COLLECTION].update_one(NAME, {"$set": {"version": version}}, upsert=True)


async def outstanding(database: MongoDatabase, schema: Schema) -> Outstanding:
    """What is left to be done. Raises SchemaIsNewer."""
    reached = await version_of(database)
    if reached > schema.version:
        raise SchemaIsNewer(database.name, reached, schema.version)
    numbered = list(enumerate(schema.migrations, start=1))
    return Outstanding(numbered[reached:], await _missing(database, schema.indexes))


async def in_batches(
    collection: AsyncIOMotorCollection[Document], older: Document, change: Sequence[Mapping[str, Any]], done: Done
) -> None:
    """Change all documents that are still `older`, in the order of their ids, with an update of these stages."""
    after: Document = {}
    while True:
        with long_timeout():
            found = collection.find({"$and": [older, after]}, {"_id": True}).sort("_id", ASCENDING).limit(BATCH)
            ids = [document["_id"] for document in await found.to_list(None)]
            if not ids:
                return
            await collection.update_many({"$and": [older, {"_id": {"$in": ids}}]}, change)
        done(len(ids))
        after = {"_id": {"$gt": ids[-1]}}


async def _missing(database: MongoDatabase, indexes: Indexes) -> Indexes:
    """Those that are not there, or otherwise; the server refuses to make the latter, which must not pass unseen."""
    missing = {}
    for collection, models in indexes.items():
        there = await database[collection].index_information()
        lacking = [model for model in models if not _is_made(model, there.get(model.document["name"], {}))]
        if lacking:
            missing[collection] = lacking
    return missing


def _is_made(model: IndexModel, found: Mapping[str, Any]) -> bool:
    wanted = {**model.document, "key": list(model.document["key"].items())}
    return {name: value for name, value in found.items() if name != "v"} == {
        name: value for name, value in wanted.items() if name != "name"
    }
