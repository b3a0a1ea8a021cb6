"""Migrates a database; a lease allows one process at a time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from uuid import uuid4

from common.concurrency.background import running
from common.concurrency.lease import keep_lease
from common.mongo import Document, MongoDatabase, MongoError, make_indexes
from common.mongo.schema import BATCH, COLLECTION, NAME, Migrating, Migration, Schema, outstanding
from common.telemetry import log

LEASE = 30_000  # milliseconds without renewal until another process may take over
RENEWAL = 5.0  # seconds

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
        async with keep_lease(self._renew, RENEWAL, database=self._name) as renewal, running(work) as working:
            await asyncio.wait({working, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Migrating(self._name)
            await working

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
