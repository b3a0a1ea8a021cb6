"""The records of moves: one mover leases a file, and only the current holder changes records."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from common.work import Lease
from tests.support.databases import RecordedCommands, own_database
from tests.support.servers.object_storage import ObjectServer
from tests.support.services.storage_pair import StoragePair, make_storage_pair
from tests.support.services.tenant_first import TenantFilterCheck
from upload_service.model import Damage, Status, StorageKind
from upload_service.storage.store import MongoMoveStore, Move
from upload_service.store import INDEXES
from upload_service.uploads.claims import Collector


@pytest.fixture
async def storages(mongo_url: str, tmp_path: Path, object_server: ObjectServer) -> AsyncIterator[StoragePair]:
    async with own_database(mongo_url, indexes=INDEXES) as database:
        yield make_storage_pair(database, tmp_path, object_server)


async def leased(store: MongoMoveStore, home: StorageKind = StorageKind.FOLDER) -> Lease[Move]:
    await store.make_due([home])
    lease = await store.queue.lease()
    assert lease is not None
    return lease


async def test_a_holder_of_an_expired_move_lease_changes_nothing(storages: StoragePair) -> None:
    upload = await storages.add_installer()
    stale = await leased(storages.store)
    await storages.expire_leases()
    current = await leased(storages.store)
    before = await storages.record(upload)
    assert not await storages.store.renew(stale)
    assert not await storages.store.set_storage(stale, StorageKind.S3)
    await storages.store.clear_previous(stale)
    await storages.store.mark_damaged(stale, Damage.ALTERED)
    assert await storages.record(upload) == before
    await storages.store.make_due([StorageKind.FOLDER])  # It is due already.
    assert await storages.store.renew(current)
    assert await storages.store.set_storage(current, StorageKind.S3)


async def test_a_move_whose_copy_was_not_removed_stays_due(storages: StoragePair) -> None:
    upload = await storages.add_installer()
    assert await storages.store.set_storage(await leased(storages.store), StorageKind.S3)
    await storages.expire_leases()
    lease = await storages.store.queue.lease()
    assert lease is not None
    assert (lease.record.upload.upload_id, lease.record.previous) == (upload.upload_id, StorageKind.FOLDER)
    await storages.store.clear_previous(lease)
    await storages.store.make_due([StorageKind.FOLDER])
    assert await storages.store.queue.lease() is None
    assert (await leased(storages.store, StorageKind.S3)).record.previous is None


async def test_remaining_omits_damaged_files_and_those_that_cannot_be_moved(storages: StoragePair) -> None:
    failed, other = await storages.add_installer(b"abc"), await storages.add_installer(b"defgh")
    await storages.add_installer(damage=Damage.ALTERED)
    await storages.add_installer(status=Status.DELETING)
    in_bucket = await storages.add_installer(storage=StorageKind.S3)
    store, folder = storages.store, StorageKind.FOLDER
    assert await store.remaining(folder) == (2, 8)
    assert await store.remaining(folder, [failed.upload_id]) == (1, 5)
    assert await store.remaining(folder, [failed.upload_id, other.upload_id]) == (0, 0)
    assert await store.count(folder) == 3
    assert not await store.has_any(failed.tenant_id, StorageKind.S3)
    assert await store.has_any(in_bucket.tenant_id, StorageKind.S3)


async def test_counting_all_files_may_take_minutes(mongo_url: str, storages: StoragePair) -> None:
    recorded = RecordedCommands("aggregate")
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(
        mongo_url, timeoutMS=2500, event_listeners=[recorded]
    )
    store = MongoMoveStore(client[storages.database.name])
    await store.remaining(StorageKind.FOLDER)
    await store.count(StorageKind.FOLDER)
    client.close()
    assert len(recorded.commands) == 2
    assert min(command["maxTimeMS"] for command in recorded.commands) > 60_000


async def test_every_query_of_one_file_begins_with_its_tenant(mongo_url: str, storages: StoragePair) -> None:
    upload = await storages.add_installer()
    move = await leased(storages.store)
    listener = TenantFilterCheck()
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, event_listeners=[listener])
    store = MongoMoveStore(client[storages.database.name])
    await store.renew(move)
    await store.set_storage(move, StorageKind.S3)
    await store.clear_previous(move)
    await store.mark_damaged(move, Damage.NONE)
    await store.find(upload)
    await store.has_any(upload.tenant_id, StorageKind.S3)
    await store.queue.release(move)
    client.close()
    assert listener.seen == 7
    assert listener.violations == []


async def test_the_collector_removes_from_every_storage(storages: StoragePair) -> None:
    unclaimed = [await storages.add_installer(storage=home, status=Status.COMPLETE) for home in StorageKind]
    half_done = [await storages.add_installer(storage=home, status=Status.DELETING) for home in StorageKind]
    stored = [await storages.add_installer(storage=home) for home in StorageKind]
    await Collector(storages.removal, transfer_idle=60, unclaimed_age=60).collect()
    for upload in (*unclaimed, *half_done):
        assert await storages.backend(upload.storage).size(upload) is None
        assert await storages.store.find(upload) is None
    for upload in stored:
        await storages.assert_only_in(upload.storage, upload)
