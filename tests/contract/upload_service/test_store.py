"""The stores of uploads and quotas: one update decides, and it matches the tenant's records only."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from common.mongo import MongoDatabase
from common.work import Lease
from tests.support.databases import own_database
from tests.support.services.tenant_first import TenantFilterCheck
from upload_service.model import Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.store import INDEXES
from upload_service.uploads.store import MongoUploadStore


@pytest.fixture(scope="module")
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=INDEXES) as opened:
        yield opened


@pytest.fixture(scope="module")
def store(database: MongoDatabase) -> MongoUploadStore:
    return MongoUploadStore(database)


async def leased_transfer(store: MongoUploadStore, tenant_id: str = "") -> Upload:
    """A new transfer of ten bytes with its lease."""
    tenant_id = tenant_id or f"t{uuid4().hex}"
    await store.create(tenant_id, "f", 10)
    upload = await store.acquire_lease(tenant_id, "f")
    assert upload is not None
    return upload


def complete_upload(upload: Upload) -> Upload:
    return replace(upload, status=Status.COMPLETE, server_filename=uuid4().hex, size=10, sha256="digest")


async def lease_announcement(store: MongoUploadStore, upload: Upload) -> Lease[Upload]:
    lease = await store.announcements.lease(tenant_id=upload.tenant_id)
    assert lease is not None
    assert lease.record.upload_id == upload.upload_id
    return lease


async def announce(store: MongoUploadStore, upload: Upload) -> None:
    assert await store.announcements.finish(await lease_announcement(store, upload))


async def complete(store: MongoUploadStore, *, announced: bool = True) -> Upload:
    upload = complete_upload(await leased_transfer(store))
    assert await store.complete(upload)
    if announced:
        await announce(store, upload)
    stored = await store.find(upload.tenant_id, "f")
    assert stored is not None
    return stored


async def expire_lease(database: MongoDatabase, upload: Upload) -> None:
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    where = {"tenant_id": upload.tenant_id, "file_id": upload.file_id}
    await database["uploads"].update_one(where, {"$set": {"lease_until": expired_at}})


async def test_concurrent_requests_make_one_transfer_and_one_of_them_acquires_its_lease(
    store: MongoUploadStore, database: MongoDatabase
) -> None:
    await asyncio.gather(*(store.create("many", "f", 10) for _ in range(20)))
    leases = await asyncio.gather(*(store.acquire_lease("many", "f") for _ in range(20)))
    (lease,) = [lease for lease in leases if lease]
    await store.create("many", "f", 99)
    assert await store.find("many", "f") == lease
    assert await database["uploads"].count_documents({"tenant_id": "many"}) == 1


@pytest.mark.parametrize("has_expired", [False, True])
async def test_only_an_expired_lease_marks_the_transfer_for_a_copy(
    store: MongoUploadStore, database: MongoDatabase, has_expired: bool
) -> None:
    first = await leased_transfer(store)
    await (expire_lease(database, first) if has_expired else store.release(first))
    second = await store.acquire_lease(first.tenant_id, "f")
    assert second is not None
    assert (second.fence, second.needs_copy) == (first.fence + 1, has_expired)
    await store.release(second)
    third = await store.acquire_lease(first.tenant_id, "f")
    assert third is not None
    assert third.needs_copy is has_expired


async def test_a_copied_transfer_needs_no_further_copy(store: MongoUploadStore, database: MongoDatabase) -> None:
    first = await leased_transfer(store)
    await expire_lease(database, first)
    second = await store.acquire_lease(first.tenant_id, "f")
    assert second is not None
    assert await store.set_generation(replace(second, generation=second.fence))
    assert not await store.set_generation(first)
    assert await store.advance(replace(second, offset=5))
    third = await store.acquire_lease(first.tenant_id, "f")
    assert third is not None
    assert (third.generation, third.needs_copy, third.offset) == (second.fence, False, 5)


async def test_a_holder_of_an_expired_lease_changes_nothing(store: MongoUploadStore, database: MongoDatabase) -> None:
    stale = await leased_transfer(store)
    await expire_lease(database, stale)
    current = await store.acquire_lease(stale.tenant_id, "f")
    assert current is not None
    assert not await store.renew(stale)
    assert not await store.advance(replace(stale, offset=5))
    assert not await store.complete(complete_upload(stale))
    await store.release(stale)
    assert not await store.abandon(stale)
    await store.delete_record(stale)
    assert await store.find(stale.tenant_id, "f") == current
    assert await store.acquire_lease(stale.tenant_id, "f") is None
    assert await store.advance(replace(current, offset=5))


async def test_a_file_is_linked_or_marked_deleting_but_not_both(store: MongoUploadStore) -> None:
    for _ in range(20):
        upload = await complete(store)
        won = await asyncio.gather(store.link(upload, "v1"), store.mark_deleting(upload), store.link(upload, "v2"))
        assert len([result for result in won if result]) == 1


async def test_a_link_is_undone_by_the_last_claim_only(store: MongoUploadStore) -> None:
    upload = await complete(store)
    first, second = await store.link(upload, "v1"), await store.link(upload, "v1")
    assert first is not None
    assert second is not None
    assert not await store.unlink(first)
    assert await store.link(upload, "v2") is None
    assert await store.unlink(second)


async def test_a_transfer_with_a_lease_is_not_deleted(store: MongoUploadStore) -> None:
    upload = await leased_transfer(store)
    assert not await store.mark_deleting(upload)
    await store.release(upload)
    await store.delete_record(upload)  # It is not deleting yet.
    assert await store.mark_deleting(upload)
    assert await store.acquire_lease(upload.tenant_id, "f") is None
    await store.delete_record(upload)
    assert await store.find(upload.tenant_id, "f") is None


async def test_a_deleted_unannounced_upload_frees_its_file_id(store: MongoUploadStore, database: MongoDatabase) -> None:
    upload = await complete(store, announced=False)
    assert await store.mark_deleting(upload)
    await store.delete_record(upload)
    assert await store.find(upload.tenant_id, "f") is None
    lease = await lease_announcement(store, upload)
    waiting = lease.record
    assert waiting.original_file_id == "f"
    await store.delete_record(waiting)
    assert await store.announcements.finish(lease)
    await store.delete_record(waiting)
    assert await database["uploads"].count_documents({"tenant_id": upload.tenant_id}) == 0


async def test_a_released_lease_is_not_renewed(store: MongoUploadStore) -> None:
    upload = await leased_transfer(store)
    assert await store.renew(upload)
    assert await store.advance(replace(upload, offset=5))
    assert not await store.renew(upload)
    assert await store.acquire_lease(upload.tenant_id, "f") is not None


async def test_a_file_linked_to_another_version_is_not_marked_deleting(store: MongoUploadStore) -> None:
    upload = await complete(store)
    first = await store.link(upload, "v1")
    assert first is not None
    (linked,) = await store.find_linked(upload.tenant_id, ["v1"])
    assert await store.unlink(first)
    assert await store.link(upload, "v2") is not None
    assert not await store.mark_deleting(linked)


async def test_a_deleted_unannounced_upload_is_not_stale(store: MongoUploadStore) -> None:
    waiting, halfway = await complete(store, announced=False), await complete(store)
    for upload in (waiting, halfway):
        assert await store.mark_deleting(upload)
    await store.delete_record(waiting)
    stale_ids = {upload.upload_id for upload in await store.find_stale(Status.DELETING, 0, 100_000)}
    assert stale_ids & {waiting.upload_id, halfway.upload_id} == {halfway.upload_id}


async def test_every_filter_begins_with_the_tenant(mongo_url: str, database: MongoDatabase) -> None:
    filters = TenantFilterCheck()
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, event_listeners=[filters])
    store, quota = MongoUploadStore(client[database.name]), MongoQuotaStore(client[database.name])
    upload = await complete(store, announced=False)
    await quota.reserve(upload, 10, 10)
    await store.advance(upload)
    await store.find_installer(upload.tenant_id, upload.server_filename)
    await announce(store, upload)
    linked = await store.link(upload, "v1")
    assert linked is not None
    await store.unclaimed(upload.tenant_id, [upload.server_filename])
    await store.find_linked(upload.tenant_id, ["v1"])
    await quota.charge(upload, 10)
    await store.unlink(linked)
    await store.mark_deleting(upload)
    await quota.release(upload)
    await quota.shrink(upload, 1)
    await quota.usage(upload.tenant_id)
    await store.delete_record(upload)
    await store.forget_tenant(upload.tenant_id)
    await quota.forget_tenant(upload.tenant_id)
    client.close()
    assert filters.violations == []
    assert filters.seen > 15
