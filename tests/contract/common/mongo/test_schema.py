"""Migrations on a real MongoDB: in order, each once, in one process at a time, and resumable after any interruption."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from uuid import uuid4

import pytest
from pymongo import ASCENDING, IndexModel
from pymongo.errors import OperationFailure

from common.mongo import MongoDatabase, open_database
from common.mongo import schema as schema_module
from common.mongo.schema import (
    Done,
    Lease,
    Migrating,
    Migration,
    Schema,
    SchemaIsNewer,
    in_batches,
    migrate,
    migrate_again,
    outstanding,
    set_version,
    version_of,
)

INDEXES = {"things": [IndexModel([("tenant_id", ASCENDING), ("size", ASCENDING)], unique=True)]}


class ProcessKilled(Exception):
    """Simulates the end of a process."""


@pytest.fixture
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with open_database(mongo_url, f"test_schema_{uuid4().hex[:8]}") as database:
        yield database
        await database.client.drop_database(database.name)


class Steps:
    """Two migrations: rename the width to size, then double it. Counts the starts of each."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def measure(self, database: MongoDatabase, done: Done) -> None:
        self.begun.append("measure")
        await in_batches(database["things"], {"size": {"$exists": False}}, [{"$set": {"size": "$width"}}], done)

    async def double(self, database: MongoDatabase, done: Done) -> None:
        self.begun.append("double")
        change = [{"$set": {"size": {"$multiply": ["$size", 2]}, "doubled": True}}]
        await in_batches(database["things"], {"doubled": {"$ne": True}}, change, done)

    @property
    def schema(self) -> Schema:
        return Schema([Migration("measure things", self.measure), Migration("double them", self.double)], INDEXES)


@pytest.fixture
def steps() -> Steps:
    return Steps()


async def fill(database: MongoDatabase, count: int = 7) -> None:
    await database["things"].insert_many([{"tenant_id": "acme", "width": number} for number in range(count)])


async def sizes(database: MongoDatabase) -> Sequence[int | None]:
    return [thing.get("size") async for thing in database["things"].find({}).sort("width", ASCENDING)]


async def test_migrations_run_in_order_and_indexes_are_created_after_them(
    database: MongoDatabase, steps: Steps
) -> None:
    await fill(database)
    assert (await outstanding(database, steps.schema)).sentences() == [
        "1: measure things",
        "2: double them",
        "1 indexes of things",
    ]
    reported: list[str] = []
    await migrate(database, steps.schema, reported.append)
    assert await sizes(database) == [0, 2, 4, 6, 8, 10, 12]
    assert await version_of(database) == 2
    assert (await outstanding(database, steps.schema)).sentences() == []
    assert reported == [
        "migrating, 1: measure things",
        "migrating, 1: measure things, 7 documents",
        "migrating, 2: double them",
        "migrating, 2: double them, 7 documents",
        "migrating: indexes",
    ]


async def test_only_new_migrations_run(database: MongoDatabase, steps: Steps) -> None:
    await fill(database)
    await migrate(database, Schema(steps.schema.migrations[:1], {}))
    for _ in range(2):
        await migrate(database, steps.schema)
    assert steps.begun == ["measure", "double"]
    await migrate_again(database, steps.schema, 0)
    assert await sizes(database) == [0, 2, 4, 6, 8, 10, 12]


async def test_a_migration_interrupted_after_any_batch_continues(
    database: MongoDatabase, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_module, "BATCH", 2)
    monkeypatch.setattr(schema_module, "LEASE", -1)  # A killed process does not release its lease.
    monkeypatch.setattr(Lease, "release", lambda _: asyncio.sleep(0))
    await fill(database)

    def cut(text: str) -> None:
        if text.endswith("documents"):
            raise ProcessKilled

    for _ in range(8):  # batches
        with pytest.raises(ProcessKilled):
            await migrate(database, steps.schema, cut)
    await migrate(database, steps.schema, cut)
    assert await sizes(database) == [0, 2, 4, 6, 8, 10, 12]


async def test_one_of_several_concurrent_processes_migrates(database: MongoDatabase, steps: Steps) -> None:
    await fill(database)
    outcomes = await asyncio.gather(*(migrate(database, steps.schema) for _ in range(5)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {Migrating, type(None)}
    assert steps.begun == ["measure", "double"]


async def test_a_lease_stays_with_a_live_holder_and_expires_for_a_dead_one(
    database: MongoDatabase, steps: Steps
) -> None:
    assert await Lease(database).acquire()
    with pytest.raises(Migrating):
        await migrate(database, steps.schema)
    assert steps.begun == []
    await database["schema"].update_one({}, [{"$set": {"until": {"$subtract": ["$$NOW", 1]}}}])
    await migrate(database, steps.schema)
    assert steps.begun == ["measure", "double"]


async def test_a_lease_is_renewed_during_a_slow_migration(
    database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_module, "RENEWAL", 0.01)

    async def until(database: MongoDatabase) -> datetime:
        (lease,) = await database["schema"].find({}).to_list(None)
        expires_at: datetime = lease["until"]
        return expires_at

    async def slow(database: MongoDatabase, _: Done) -> None:
        first = await until(database)
        async with asyncio.timeout(60):
            while await until(database) == first:
                pass

    await migrate(database, Schema([Migration("take its time", slow)], {}))
    assert await version_of(database) == 1


async def test_a_process_without_its_lease_stops_and_records_nothing(
    database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_module, "RENEWAL", 0.01)
    ended = []

    async def slow(database: MongoDatabase, _: Done) -> None:
        await database["schema"].update_one({}, {"$set": {"holder": "another"}})
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def quick(database: MongoDatabase, _: Done) -> None:
        await database["schema"].update_one({}, {"$set": {"holder": "another"}})

    for work in (slow, quick):
        async with asyncio.timeout(60):
            with pytest.raises(Migrating):
                await migrate(database, Schema([Migration("lose the lease", work)], {}))
        assert await version_of(database) == 0
        await database["schema"].delete_many({})
    assert ended


async def test_a_failed_migration_releases_the_lease(database: MongoDatabase, steps: Steps) -> None:
    await fill(database)

    def fail(_: str) -> None:
        raise ProcessKilled

    with pytest.raises(ProcessKilled):
        await migrate(database, steps.schema, fail)
    await migrate(database, steps.schema)
    assert await sizes(database) == [0, 2, 4, 6, 8, 10, 12]


async def test_a_newer_database_is_refused(database: MongoDatabase, steps: Steps) -> None:
    await set_version(database, 3)
    with pytest.raises(SchemaIsNewer, match="schema is newer than this program, 3 where it knows 2"):
        await migrate(database, steps.schema)
    assert steps.begun == []


async def test_an_index_with_other_options_is_an_error(database: MongoDatabase, steps: Steps) -> None:
    await database["things"].create_index([("tenant_id", ASCENDING), ("size", ASCENDING)])
    with pytest.raises(OperationFailure):
        await migrate(database, steps.schema)
