"""Records of a backup, read from and written to a real MongoDB."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.errors import OperationFailure

from common.mongo import MongoDatabase
from deploy.backup.records import (
    TOO_OLD,
    UNAVAILABLE,
    BackupProblem,
    DatabaseSnapshot,
    documents,
    restore_documents,
    snapshot_read,
)
from tests.support.databases import own_database

ROW: Mapping[str, Any] = {
    "_id": bson.ObjectId(),
    "tenant_id": "acme",
    "small": 1,
    "large": bson.Int64(1),
    "at": datetime(2026, 1, 31, tzinfo=UTC),
    "bytes": b"\x00\xff",
    "nested": {"b": [1.5, None], "a": True},
}


@pytest.fixture
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url) as opened:
        yield opened


async def test_repeated_restores_return_records_byte_for_byte(database: MongoDatabase, tmp_path: Path) -> None:
    await database["rows"].insert_one(dict(ROW))

    async def read(moment: DatabaseSnapshot) -> None:
        entry = await moment.export(database.name, "rows", tmp_path, {})
        assert entry.size == len(bson.encode(ROW))

    await snapshot_read(database.client, read)
    (path,) = tmp_path.iterdir()
    for _ in range(2):
        await restore_documents(database.client, database.name, "again", documents(path))
    assert [bson.encode(row) async for row in database["again"].find({})] == [bson.encode(ROW)]


async def test_a_snapshot_excludes_later_writes(database: MongoDatabase, tmp_path: Path) -> None:
    await database["rows"].insert_one({"_id": 1})

    async def read(moment: DatabaseSnapshot) -> list[int]:
        counts: list[int] = []
        for _ in range(2):
            entry = await moment.export(database.name, "rows", tmp_path, {})
            counts += [row["_id"] for row in documents(tmp_path / entry.name)]
            await database["rows"].insert_one({"_id": len(counts) + 1})
        return counts

    assert await snapshot_read(database.client, read) == [1, 1]


async def test_a_record_does_not_replace_one_of_another_tenant(database: MongoDatabase) -> None:
    await database["rows"].insert_one(dict(ROW))
    with pytest.raises(BackupProblem, match="the database rejects a record"):
        await restore_documents(database.client, database.name, "rows", iter([{**ROW, "tenant_id": "other"}]))
    assert [row["tenant_id"] async for row in database["rows"].find({})] == ["acme"]


async def test_a_snapshot_is_retried_when_early_and_reported_when_lost(
    database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.backup.records.PAUSE", 0)
    failures = [OperationFailure("", UNAVAILABLE), OperationFailure("", UNAVAILABLE)]

    async def read(_: DatabaseSnapshot) -> str:
        if failures:
            raise failures.pop()
        return "read"

    assert await snapshot_read(database.client, read) == "read"
    failures.append(OperationFailure("", TOO_OLD))
    with pytest.raises(BackupProblem, match="minSnapshotHistoryWindowInSeconds"):
        await snapshot_read(database.client, read)
