"""A database is brought up to date by one process at a time, which has a lease for it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from uuid import uuid4

from common.concurrency.lease import keep_lease
from common.mongo import Document, MongoDatabase, MongoError, make_indexes
from common.mongo.schema import BATCH, COLLECTION, NAME, Migrating, Migration, Schema, outstanding
from common.telemetry import log

LEASE = 30_000  # milliseconds after which another may take over from a process that was not heard of
RENEWAL = 5.0  # seconds

Tell = Callable[[str], None]


def ignore(_: str) -> None:
    """Tell nobody how far it is."""


async def migrate(database: MongoDatabase, schema: Schema, tell: Tell = ignore) -> None:
    """Do what is left to be done, where there is anything; `tell` hears how far it is.

    Raises:
        SchemaIsNewer: a later version has been at work here.
        Migrating: another process is at it.
    """
    if not (await outstanding(database, schema)).sentences():
        return
    lease = Lease(database)
    if not await lease.take():
        raise Migrating(database.name)
    try:
        await lease.during(_bring_up(database, schema, lease, tell))
    finally:
        with suppress(MongoError):
            await lease.give_back()


async def migrate_again(database: MongoDatabase, schema: Schema, version: int) -> None:
    """Bring up to date what came from a database of this version into one that is further."""
    for number, migration in list(enumerate(schema.migrations, start=1))[version:]:
        await migration.work(database, _Progress(database.name, number, migration, ignore).done)


class Lease:
    """The right to migrate a database, by the server's clock."""

    def __init__(self, database: MongoDatabase) -> None:
        self._documents = database[COLLECTION]
        self._name = database.name
        self._holder = uuid4().hex
        self._ours = {**NAME, "holder": self._holder}

    async def take(self) -> bool:
        """Take it where nobody has it, or who had it was not heard of for its length."""
        await self._documents.update_one(NAME, {"$setOnInsert": {"version": 0}}, upsert=True)
        free: Document = {**NAME, "$expr": {"$lt": [{"$ifNull": ["$until", 0]}, "$$NOW"]}}
        return await self._change(free, {"holder": self._holder, "until": {"$add": ["$$NOW", LEASE]}})

    async def reach(self, number: int) -> None:
        """Say that a migration is done. Raises Migrating where another has the lease by now."""
        if not await self._change(self._ours, {"version": number}):
            raise Migrating(self._name)

    async def give_back(self) -> None:
        await self._change(self._ours, {"holder": "$$REMOVE", "until": "$$REMOVE"})

    async def during(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` and renew the lease. Raises Migrating, and cancels the work, when another process has the lease."""
        async with keep_lease(self._renew, RENEWAL, database=self._name) as renewal:
            working = asyncio.create_task(work)
            try:
                await asyncio.wait({working, renewal}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    raise Migrating(self._name)
                await working
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _renew(self) -> bool:
        return await self._change(self._ours, {"until": {"$add": ["$$NOW", LEASE]}})

    async def _change(self, which: Document, fields: Document) -> bool:
        return (await self._documents.update_one(which, [{"$set": fields}])).matched_count == 1


class _Progress:
    """How far a migration is."""

    def __init__(self, database: str, number: int, migration: Migration, tell: Tell) -> None:
        self._what = {"database": database, "number": number, "name": migration.name}
        self._text = f"migrating, {number}: {migration.name}"
        self._tell = tell
        self._documents = 0
        tell(self._text)

    def done(self, documents: int) -> None:
        before, self._documents = self._documents, self._documents + documents
        if before // BATCH < self._documents // BATCH:
            log.info("migrating", **self._what, documents=self._documents)
        self._tell(f"{self._text}, {self._documents} documents")

    def ended(self) -> None:
        log.info("migrated", **self._what, documents=self._documents)


async def _bring_up(database: MongoDatabase, schema: Schema, lease: Lease, tell: Tell) -> None:
    left = (await outstanding(database, schema)).migrations  # fewer than before, where another just had the lease
    for number, migration in left:
        progress = _Progress(database.name, number, migration, tell)
        await migration.work(database, progress.done)
        await lease.reach(number)
        progress.ended()
    missing = (await outstanding(database, schema)).indexes
    if missing:
        tell("migrating: indexes")
        await make_indexes(database, missing)
        log.info("indexes_made", database=database.name, collections=sorted(missing))
