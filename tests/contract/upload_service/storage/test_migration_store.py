"""The records of moves: one mover leases a file, and only the current holder changes records."""

from typing import Any

from motor.motor_asyncio import AsyncIOMotorClient

from common.work import Lease
from tests.support.databases import RecordedCommands
from tests.support.services.storage_pair import StoragePair, storages
from tests.support.services.tenant_first import TenantFilterCheck
from upload_service.model import Damage, Status, StorageKind
from upload_service.storage.store import MongoMoveStore, Move
from upload_service.uploads.claims import Collector

__all__ = ["storages"]


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


async def test_a_file_that_waits_for_its_move_is_not_made_due_again(storages: StoragePair) -> None:
    await storages.add_installer()
    lease = await leased(storages.store)
    await storages.store.make_due([StorageKind.FOLDER])
    assert await storages.store.renew(lease)


async def test_remaining_omits_damaged_files(storages: StoragePair) -> None:
    for content in (b"abc", b"defgh"):
        await storages.add_installer(content)
    await storages.add_installer(damage=Damage.ALTERED)
    await storages.add_installer(status=Status.DELETING)
    await storages.add_installer(storage=StorageKind.S3)
    assert await storages.store.remaining(StorageKind.FOLDER) == (2, 8)
    assert await storages.store.count(StorageKind.FOLDER) == 3


async def test_remaining_can_omit_files_that_cannot_be_moved(storages: StoragePair) -> None:
    failed, other = await storages.add_installer(b"abc"), await storages.add_installer(b"defgh")
    assert await storages.store.remaining(StorageKind.FOLDER, [failed.upload_id]) == (1, 5)
    assert await storages.store.remaining(StorageKind.FOLDER, [failed.upload_id, other.upload_id]) == (0, 0)


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


async def test_has_any_finds_the_tenants_files_in_a_storage(storages: StoragePair) -> None:
    in_folder, in_bucket = await storages.add_installer(), await storages.add_installer(storage=StorageKind.S3)
    assert not await storages.store.has_any(in_folder.tenant_id, StorageKind.S3)
    assert await storages.store.has_any(in_bucket.tenant_id, StorageKind.S3)


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
