"""What the records of moves promise: one mover has a file at a time, and only the last to lease it changes anything."""

import asyncio
from typing import Any

from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from tests.support.services.moving import Estate, estate
from tests.support.services.tenant_first import TenantFirst
from upload_service.maintenance.purge import Collector
from upload_service.model import Damage, Move, Status, StorageKind
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.migration_store import MongoMoveStore
from upload_service.uploads.store import MongoUploadStore

__all__ = ["estate"]


async def leased(store: MongoMoveStore, home: StorageKind = StorageKind.FOLDER) -> Move:
    move = await store.lease_next(home, ())
    assert move is not None
    return move


async def test_a_file_is_leased_to_one_of_many(estate: Estate) -> None:
    await estate.keep()
    moves = await asyncio.gather(*(estate.store.lease_next(StorageKind.FOLDER, ()) for _ in range(20)))
    assert len([move for move in moves if move]) == 1


async def test_a_lease_that_was_given_back_is_given_again_at_once(estate: Estate) -> None:
    await estate.keep()
    move = await leased(estate.store)
    await estate.store.release(move)
    assert (await leased(estate.store)).token != move.token


async def test_a_lease_that_ran_out_changes_nothing_any_more(estate: Estate) -> None:
    upload = await estate.keep()
    stale = await leased(estate.store)
    await estate.let_leases_pass()
    current = await leased(estate.store)
    before = await estate.record(upload)
    assert not await estate.store.renew(stale)
    assert not await estate.store.set_storage(stale, StorageKind.S3)
    await estate.store.clear_previous(stale)
    await estate.store.mark_damaged(stale, Damage.ALTERED)
    await estate.store.release(stale)
    assert await estate.record(upload) == before
    assert await estate.store.renew(current)
    assert await estate.store.set_storage(current, StorageKind.S3)


async def test_a_file_is_not_moved_back_before_its_old_home_is_tidy(estate: Estate) -> None:
    upload = await estate.keep()
    move = await leased(estate.store)
    assert await estate.store.set_storage(move, StorageKind.S3)
    await estate.store.release(move)
    assert await estate.store.lease_next(StorageKind.S3, ()) is None
    left = await estate.store.lease_leftover([StorageKind.FOLDER], ())
    assert left is not None
    assert (left.upload.upload_id, left.previous) == (upload.upload_id, StorageKind.FOLDER)
    await estate.store.clear_previous(left)
    await estate.store.release(left)
    assert await estate.store.lease_leftover(list(StorageKind), ()) is None
    assert (await leased(estate.store, StorageKind.S3)).upload.upload_id == upload.upload_id


async def test_what_is_to_be_moved_is_counted_without_the_damaged(estate: Estate) -> None:
    for content in (b"abc", b"defgh"):
        await estate.keep(content)
    await estate.keep(damage=Damage.ALTERED)
    await estate.keep(status=Status.DELETING)
    await estate.keep(home=StorageKind.S3)
    assert await estate.store.remaining(StorageKind.FOLDER) == (2, 8)
    assert await estate.store.count(StorageKind.FOLDER) == 3


async def test_what_cannot_be_moved_now_may_be_left_out_of_the_count(estate: Estate) -> None:
    failed, other = await estate.keep(b"abc"), await estate.keep(b"defgh")
    assert await estate.store.remaining(StorageKind.FOLDER, [failed.upload_id]) == (1, 5)
    assert await estate.store.remaining(StorageKind.FOLDER, [failed.upload_id, other.upload_id]) == (0, 0)


class Patience(CommandListener):
    """Notes how many milliseconds the server is given for each aggregation."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "aggregate":
            self.given.append(event.command["maxTimeMS"])

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


async def test_counting_all_files_may_take_minutes(mongo_url: str, estate: Estate) -> None:
    timeout = Patience()
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(
        mongo_url, timeoutMS=2500, event_listeners=[timeout]
    )
    store = MongoMoveStore(client[estate.database.name])
    await store.remaining(StorageKind.FOLDER)
    await store.count(StorageKind.FOLDER)
    client.close()
    assert len(timeout.given) == 2
    assert min(timeout.given) > 60_000


async def test_a_tenant_has_files_at_a_home_or_has_not(estate: Estate) -> None:
    here, there = await estate.keep(), await estate.keep(home=StorageKind.S3)
    assert not await estate.store.has_any(here.tenant_id, StorageKind.S3)
    assert await estate.store.has_any(there.tenant_id, StorageKind.S3)


async def test_what_is_about_one_file_begins_with_its_tenant(mongo_url: str, estate: Estate) -> None:
    upload = await estate.keep()
    move = await leased(estate.store)
    listener = TenantFirst()
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, event_listeners=[listener])
    store = MongoMoveStore(client[estate.database.name])
    await store.renew(move)
    await store.set_storage(move, StorageKind.S3)
    await store.clear_previous(move)
    await store.mark_damaged(move, Damage.NONE)
    await store.find(upload)
    await store.has_any(upload.tenant_id, StorageKind.S3)
    await store.release(move)
    client.close()
    assert listener.seen == 7
    assert listener.violations == []


async def test_the_collector_removes_from_every_home(estate: Estate) -> None:
    unclaimed = [await estate.keep(home=home, status=Status.COMPLETE) for home in StorageKind]
    half_done = [await estate.keep(home=home, status=Status.DELETING) for home in StorageKind]
    kept = [await estate.keep(home=home) for home in StorageKind]
    store, quota = MongoUploadStore(estate.database), MongoQuotaStore(estate.database)
    await Collector(store, quota, estate.removal, transfer_idle=60, unclaimed_age=60).collect()
    for upload in (*unclaimed, *half_done):
        assert await estate.home(upload.storage).size(upload) is None
        assert await estate.store.find(upload) is None
    for upload in kept:
        await estate.expect_at(upload.storage, upload)
