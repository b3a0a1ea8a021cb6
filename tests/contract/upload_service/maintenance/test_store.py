"""The records for maintenance: files to scrub next, damaged files, and known file names."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from common.mongo import MongoDatabase
from tests.support.databases import RecordedCommands, own_database
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.store import MongoFileIndex, MongoMoveStore
from upload_service.store import INDEXES
from upload_service.uploads.store import MongoUploadStore

WEEK = 7 * 24 * 3600


@pytest.fixture
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=INDEXES) as opened:
        yield opened


@pytest.fixture
def store(database: MongoDatabase) -> MongoScrubStore:
    return MongoScrubStore(database, WEEK)


async def complete(database: MongoDatabase, tenant_id: str = "acme", **fields: Any) -> Upload:
    """A file that was just completed."""
    uploads = MongoUploadStore(database)
    file_id = uuid4().hex
    await uploads.create(tenant_id, file_id, 10)
    lease = await uploads.acquire_lease(tenant_id, file_id)
    assert lease is not None
    name = f"{lease.upload_id}.msi"
    whole = replace(lease, offset=10, size=10, sha256="digest", server_filename=name, **fields)
    assert await uploads.complete(whole)
    return replace(whole, status=Status.COMPLETE)


async def change(database: MongoDatabase, upload: Upload, **fields: Any) -> None:
    await database["uploads"].update_one({"upload_id": upload.upload_id}, {"$set": fields})


async def age(database: MongoDatabase, upload: Upload, **ages: float) -> None:
    """Let time pass since a file was read."""
    span = timedelta(**ages).total_seconds() * 1000
    earlier = {"work.scrub.due": {"$subtract": ["$work.scrub.due", span]}}
    await database["uploads"].update_one({"upload_id": upload.upload_id}, [{"$set": earlier}])


@pytest.mark.parametrize("status", [Status.OPEN, Status.DELETING])
async def test_open_and_deleting_uploads_are_not_scrubbed(
    store: MongoScrubStore, database: MongoDatabase, status: Status
) -> None:
    upload = await complete(database)
    await age(database, upload, days=8)
    await change(database, upload, status=status)
    assert await store.queue.lease() is None


@pytest.mark.parametrize(("damage", "minutes"), [(Damage.NONE, 7 * 24 * 60), (Damage.ALTERED, 60)])
async def test_an_intact_file_is_read_again_after_a_week_and_a_damaged_one_within_the_hour(
    store: MongoScrubStore, database: MongoDatabase, damage: Damage, minutes: int
) -> None:
    upload = await complete(database)
    assert await store.queue.lease() is None
    await age(database, upload, days=7)
    lease = await store.queue.lease()
    assert lease is not None
    assert await (store.mark_damaged(lease.record, damage) if damage else store.mark_intact(lease.record))
    assert await store.queue.lease() is None
    await store.read_again(lease, damage)
    await age(database, upload, minutes=minutes - 1)
    assert await store.queue.lease() is None
    await age(database, upload, minutes=1)
    assert await store.queue.lease() is not None


async def test_a_file_that_an_operator_or_a_move_found_damaged_is_read_again_soon(
    store: MongoScrubStore, database: MongoDatabase
) -> None:
    """It may be restored soon. Both do not know the interval of the scrub."""
    found, moved = await complete(database), await complete(database, "globex")
    assert await MongoScrubStore(database).mark_damaged(found, Damage.MISSING)
    moves = MongoMoveStore(database)
    await change(database, moved, updated_at=datetime(2000, 1, 1, tzinfo=UTC))
    await moves.make_due([StorageKind.FOLDER])
    move = await moves.queue.lease("acme")
    assert move is not None
    await moves.mark_damaged(move, Damage.ALTERED)
    for upload in (found, moved):
        lease = await store.queue.lease(tenant_id=upload.tenant_id)
        assert lease is not None
        await store.read_again(lease, Damage.MISSING)
        assert await store.queue.lease(tenant_id=upload.tenant_id) is None


async def test_a_scrub_with_nothing_due_scans_no_record(mongo_url: str, database: MongoDatabase) -> None:
    for _ in range(20):
        await complete(database)
    recorded = RecordedCommands("findAndModify")
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, event_listeners=[recorded])
    await MongoScrubStore(client[database.name], WEEK).queue.lease()
    client.close()
    (command,) = recorded.commands
    query = {key: command[key] for key in ("findAndModify", "query", "sort", "update")}
    plan = await database.command("explain", query)
    assert plan["executionStats"]["totalDocsExamined"] == 0


async def test_damage_is_listed_with_the_time_it_was_first_found(
    store: MongoScrubStore, database: MongoDatabase
) -> None:
    upload, other, foreign = await complete(database), await complete(database), await complete(database, "globex")
    for damaged in (upload, foreign):
        assert await store.mark_damaged(damaged, Damage.MISSING)
    (first,) = await store.damaged_installers("acme")
    await store.mark_damaged(upload, Damage.ALTERED)
    (second,) = await store.damaged_installers("acme")
    assert (first.server_filename, first.version_uid, first.damage) == (upload.server_filename, "", Damage.MISSING)
    assert second == replace(first, damage=Damage.ALTERED)
    assert (await MongoQuotaStore(database).usage("acme")).damaged == 1
    for intact in (upload, other):
        assert await store.mark_intact(intact)
    assert await store.damaged_installers("acme") == []
    assert (await MongoQuotaStore(database).usage("acme")).damaged == 0


@pytest.mark.parametrize("meanwhile", [{"status": "deleting"}, {"home": "s3"}], ids=str)
async def test_a_file_that_was_moved_or_removed_meanwhile_is_not_marked(
    store: MongoScrubStore, database: MongoDatabase, meanwhile: dict[str, str]
) -> None:
    upload = await complete(database)
    await change(database, upload, **meanwhile)
    assert not await store.mark_damaged(upload, Damage.MISSING)
    assert await database["uploads"].count_documents({"damage": {"$gt": ""}}) == 0


async def test_all_files_are_listed_page_by_page(
    store: MongoScrubStore, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upload_service.maintenance.store.PAGE", 2)
    uploads = [await complete(database) for _ in range(5)]
    await complete(database, "globex")
    assert [record.upload_id async for record in store.complete_uploads("acme")] == [
        upload.upload_id for upload in uploads
    ]
    assert len([record async for record in store.complete_uploads(None)]) == 6
    assert (await store.total_size("acme"), await store.total_size(None), await store.total_size("nobody")) == (
        50,
        60,
        0,
    )


async def test_names_and_uploads_are_known_in_their_own_tenant_only(database: MongoDatabase) -> None:
    file_index = MongoFileIndex(database)
    upload, foreign = await complete(database), await complete(database, "globex")
    names = [upload.server_filename, foreign.server_filename, "0" * 32]
    assert await file_index.known_names("acme", names) == {upload.server_filename}
    uploads = await file_index.find_uploads("acme", [upload.upload_id, foreign.upload_id, "0" * 32])
    assert [stored.upload_id for stored in uploads] == [upload.upload_id]


async def test_the_index_of_files_knows_its_storages(database: MongoDatabase) -> None:
    file_index = MongoFileIndex(database)
    assert await file_index.storage_id() is None
    assert not await file_index.has_files_at(StorageKind.FOLDER)
    await complete(database)
    assert await file_index.has_files_at(StorageKind.FOLDER)
    assert not await file_index.has_files_at(StorageKind.S3)
    storage_ids = await asyncio.gather(*(file_index.create_storage_id() for _ in range(10)))
    assert set(storage_ids) == {await file_index.storage_id()}
