"""The schema of a service's database: its migrations and indexes, and the outstanding ones.

Each service has a list of migrations, numbered from 1 on, and a database stores the number that it has reached. A
released migration is never changed, moved or removed.

A migration may be interrupted anywhere and is then run again, also on documents that are up to date. It must be safe
while the previous release still serves: each release reads what the other writes. Fields that only the previous release
needs are removed one release later.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from motor.motor_asyncio import AsyncIOMotorCollection
from prometheus_client.core import Metric
from pymongo import ASCENDING, IndexModel

from common.concurrency.background import run_leased
from common.mongo import Document, Indexes, MongoDatabase, MongoError, long_timeout, make_indexes
from common.telemetry import log
from common.telemetry.metrics import Metrics, gauges

BATCH = 1000  # documents per update
COLLECTION = "schema"
NAME: Document = {"_id": "schema"}  # of its only document

Done = Callable[[int], None]
LEASE = 30_000  # milliseconds without renewal until another process may take over
RENEWAL = 5.0  # seconds


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


Report = Callable[[str], None]


async def migrate(database: MongoDatabase, schema: Schema, report: Report = lambda _: None) -> None:
    """Run the outstanding migrations and create missing indexes; `report` gets the progress.

    Raises SchemaIsNewer, or Migrating if another process has the lease.
    """
    if not (await outstanding(database, schema)).sentences():
        return
    lease = Lease(database)
    if not await lease.acquire():
        raise Migrating(database.name)
    try:
        await lease.during(_run_migrations(database, schema, lease, report))
    finally:
        with suppress(MongoError):
            await lease.release()


async def migrate_again(database: MongoDatabase, schema: Schema, version: int) -> None:
    """Migrate records from a database of this version after they were put into a newer database."""
    for number, migration in list(enumerate(schema.migrations, start=1))[version:]:
        await migration.work(database, _Progress(database.name, number, migration, lambda _: None).done)


class Lease:
    """The right to migrate a database, by the server's clock."""

    def __init__(self, database: MongoDatabase) -> None:
        self._documents = database[COLLECTION]
        self._name = database.name
        self._holder = uuid4().hex
        self._ours = {**NAME, "holder": self._holder}

    async def acquire(self) -> bool:
        """Acquire the lease if it is free or has expired; False otherwise."""
        await self._documents.update_one(NAME, {"$setOnInsert": {"version": 0}}, upsert=True)
        free: Document = {**NAME, "$expr": {"$lt": [{"$ifNull": ["$until", 0]}, "$$NOW"]}}
        return await self._change(free, {"holder": self._holder, "until": {"$add": ["$$NOW", LEASE]}})

    async def store_version(self, number: int) -> None:
        """Store that a migration is done. Raises Migrating if another process has the lease now."""
        if not await self._change(self._ours, {"version": number}):
            raise Migrating(self._name)

    async def release(self) -> None:
        await self._change(self._ours, {"holder": "$$REMOVE", "until": "$$REMOVE"})

    async def during(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` and renew the lease. Raises Migrating, and cancels the work, when another process has the lease."""
        if not await run_leased(work, self._renew, RENEWAL, database=self._name):
            raise Migrating(self._name)

    async def _renew(self) -> bool:
        return await self._change(self._ours, {"until": {"$add": ["$$NOW", LEASE]}})

    async def _change(self, which: Document, fields: Document) -> bool:
        return (await self._documents.update_one(which, [{"$set": fields}])).matched_count == 1


class _Progress:
    """Logs and reports the progress of a migration."""

    def __init__(self, database: str, number: int, migration: Migration, report: Report) -> None:
        self._labels = {"database": database, "number": number, "name": migration.name}
        self._text = f"migrating, {number}: {migration.name}"
        self._report = report
        self._documents = 0
        report(self._text)

    def done(self, documents: int) -> None:
        before, self._documents = self._documents, self._documents + documents
        if before // BATCH < self._documents // BATCH:
            log.info("migrating", **self._labels, documents=self._documents)
        self._report(f"{self._text}, {self._documents} documents")

    def ended(self) -> None:
        log.info("migrated", **self._labels, documents=self._documents)


async def _run_migrations(database: MongoDatabase, schema: Schema, lease: Lease, report: Report) -> None:
    left = (await outstanding(database, schema)).migrations  # fewer than before if another process just had the lease
    for number, migration in left:
        progress = _Progress(database.name, number, migration, report)
        await migration.work(database, progress.done)
        await lease.store_version(number)
        progress.ended()
    missing = (await outstanding(database, schema)).indexes
    if missing:
        report("migrating: indexes")
        await make_indexes(database, missing)
        log.info("indexes_made", database=database.name, collections=sorted(missing))
