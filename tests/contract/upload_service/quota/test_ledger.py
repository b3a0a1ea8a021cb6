"""The ledger of a tenant: limited, safe against repeated and late calls, and equal to the records."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from common.mongo import MongoDatabase
from tests.support.databases import own_database
from upload_service.model import Status, Upload
from upload_service.quota import store as quota_store
from upload_service.quota.reconciliation import Reconciliation, expected_ledger
from upload_service.quota.store import MongoQuotaStore, TooManyUploads
from upload_service.store import INDEXES

SIZE = 10


@pytest.fixture(scope="module")
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=INDEXES) as opened:
        yield opened


@pytest.fixture(scope="module")
def quota(database: MongoDatabase) -> MongoQuotaStore:
    return MongoQuotaStore(database)


@pytest.fixture(scope="module")
def reconciliation(database: MongoDatabase) -> Reconciliation:
    return Reconciliation(MongoQuotaStore(database), pause=0)


def make_upload(**fields: Any) -> Upload:
    upload_id = uuid4().hex
    return Upload(
        **{"tenant_id": f"t{uuid4().hex}", "file_id": upload_id, "upload_id": upload_id, "total": SIZE, **fields}
    )


def complete_upload(status: Status, **fields: Any) -> Upload:
    upload = make_upload(status=status, size=SIZE, offset=SIZE, **fields)
    return replace(upload, server_filename=f"{upload.upload_id}.msi")


async def record(database: MongoDatabase, *uploads: Upload) -> None:
    """Insert the records of these uploads."""
    for upload in uploads:
        document = {**vars(upload), "status": upload.status.value}
        if not upload.server_filename:
            del document["server_filename"]
        await database["uploads"].insert_one(document)


async def ledger(database: MongoDatabase, upload: Upload) -> dict[str, Any]:
    document = await database["quotas"].find_one({"tenant_id": upload.tenant_id})
    assert document is not None
    return document


async def set_ledger(database: MongoDatabase, upload: Upload, **changes: Any) -> None:
    await database["quotas"].update_one({"tenant_id": upload.tenant_id}, {"$set": changes})


@dataclass
class ExpectedLedger:
    """The expected ledger of a tenant, in bytes by the number of the upload."""

    holds: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)

    def usage(self) -> tuple[int, int]:
        return sum(self.used.values()), sum(self.holds.values())

    def reserve(self, number: int, size: int, quota: int) -> bool:
        reserved = self.holds.get(number, 0)
        if number in self.settled or reserved >= size:
            return True
        if sum(self.usage()) - reserved + size > quota:
            return False
        self.holds[number] = size
        return True

    def charge(self, number: int, size: int, quota: int) -> bool:
        if number not in self.holds:
            return True
        if sum(self.usage()) > quota:
            return False
        del self.holds[number]
        self.used[number] = size
        return True

    def shrink(self, number: int, size: int) -> None:
        if number in self.holds:
            self.holds[number] = min(size, self.holds[number])

    def give_back(self, number: int) -> None:
        self.holds.pop(number, None)
        self.used.pop(number, None)
        self.settled.add(number)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "charge", "shrink", "give_back"]),
        st.integers(0, 2),
        st.integers(1, 60),  # bytes
        st.sampled_from([100, 100, 60]),  # bytes of quota, which an operator may lower
    ),
    max_size=12,
)


@settings(max_examples=25, derandomize=True)
@given(steps=STEPS)
async def test_used_and_reserved_are_right_after_any_steps_in_any_order(
    quota: MongoQuotaStore, steps: list[tuple[str, int, int, int]]
) -> None:
    tenant_id, books = uuid4().hex, ExpectedLedger()
    uploads = [make_upload(tenant_id=tenant_id) for _ in range(3)]
    for step, number, size, limit in steps:
        upload = replace(uploads[number], size=books.used.get(number, 0))
        for _ in range(2):
            match step:
                case "reserve" if number not in books.used:
                    assert await quota.reserve(upload, size, limit) is books.reserve(number, size, limit)
                case "charge":
                    complete_upload = replace(upload, size=books.holds.get(number, upload.size))
                    assert await quota.charge(complete_upload, limit) is books.charge(
                        number, complete_upload.size, limit
                    )
                case "shrink":
                    await quota.shrink(upload, size)
                    books.shrink(number, size)
                case "give_back":
                    await quota.release(upload)
                    books.give_back(number)
            assert (await quota.usage(tenant_id))[:2] == books.usage(), (step, number, size, limit)


async def test_concurrent_reservations_never_exceed_the_quota(quota: MongoQuotaStore) -> None:
    uploads = [make_upload(tenant_id="racing") for _ in range(50)]
    assert sum(await asyncio.gather(*(quota.reserve(upload, 10, 95) for upload in uploads))) == 9
    assert (await quota.usage("racing"))[:2] == (0, 90)
    await asyncio.gather(*(quota.release(upload) for upload in uploads for _ in range(3)))
    assert (await quota.usage("racing"))[:2] == (0, 0)


async def test_a_tenant_has_a_limit_of_unassigned_uploads(
    quota: MongoQuotaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_store, "HOLDS", 2)
    first, second, third = (make_upload(tenant_id="busy") for _ in range(3))
    for upload in (first, second):
        assert await quota.reserve(upload, SIZE, None)
    with pytest.raises(TooManyUploads):
        await quota.reserve(third, SIZE, None)
    assert await quota.reserve(second, SIZE + 1, None)
    await quota.release(first)
    assert await quota.reserve(third, SIZE, None)


async def test_settled_rows_are_kept_as_long_as_their_record(quota: MongoQuotaStore, database: MongoDatabase) -> None:
    with_record, without_record = complete_upload(Status.DELETING), complete_upload(Status.DELETING)
    without_record = replace(without_record, tenant_id=with_record.tenant_id)
    for upload in (with_record, without_record):
        await quota.reserve(upload, SIZE, None)
        await quota.charge(upload, None)
        await quota.release(upload)
    await record(database, with_record)
    long_ago = datetime.now(UTC) - timedelta(days=2)
    await set_ledger(
        database, with_record, settled={upload.upload_id: long_ago for upload in (with_record, without_record)}
    )
    await quota.delete_settled()
    assert list((await ledger(database, with_record))["settled"]) == [with_record.upload_id]
    await quota.release(with_record)
    assert (await quota.usage(with_record.tenant_id))[:2] == (0, 0)


async def test_only_the_newest_settled_rows_are_kept(
    quota: MongoQuotaStore, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_store, "SETTLED", 3)
    uploads = [make_upload(tenant_id="thorough") for _ in range(5)]
    for upload in uploads:
        await quota.reserve(upload, SIZE, None)
    for upload in uploads:
        await quota.release(upload)
    await quota.delete_settled()
    assert list((await ledger(database, uploads[0]))["settled"]) == [upload.upload_id for upload in uploads[2:]]


async def every_kind(database: MongoDatabase, quota: MongoQuotaStore) -> Upload:
    """A tenant with uploads of every status and a correct ledger; returns one upload."""
    tenant_id = f"t{uuid4().hex}"
    begun, just_opened = make_upload(tenant_id=tenant_id, offset=4), make_upload(tenant_id=tenant_id)
    of_unknown_length = make_upload(tenant_id=tenant_id, total=0)
    statuses = [Status.COMPLETE, Status.LINKED, Status.LINKED, Status.DELETING, Status.DELETING]
    stored = [complete_upload(status, tenant_id=tenant_id) for status in statuses]
    _, linked, _, deleting, deleted = stored
    await record(database, begun, just_opened, of_unknown_length, *stored)
    for upload in (begun, *stored):
        await quota.reserve(upload, SIZE, None)
    await quota.reserve(of_unknown_length, 64, None)
    for upload in (linked, deleting, deleted):
        await quota.charge(upload, None)
    await quota.release(deleted)
    return linked


async def test_a_ledger_of_every_kind_of_upload_has_not_drifted(
    reconciliation: Reconciliation, database: MongoDatabase, quota: MongoQuotaStore
) -> None:
    linked = await every_kind(database, quota)
    assert (await quota.usage(linked.tenant_id))[:2] == (2 * SIZE, 3 * SIZE + 64)
    assert await reconciliation.find_drift(linked.tenant_id) is None


@pytest.mark.parametrize("wrong", [{"used": 7}, {"used": -1}, {"reserved": 0}])
async def test_a_drifted_sum_is_found_and_repaired(
    reconciliation: Reconciliation, database: MongoDatabase, quota: MongoQuotaStore, wrong: dict[str, int]
) -> None:
    linked = await every_kind(database, quota)
    right = (await quota.usage(linked.tenant_id))[:2]
    await set_ledger(database, linked, **wrong)
    (drift,) = await reconciliation.find_all_drift(linked.tenant_id)
    assert (drift.expected.used, drift.expected.reserved) == right
    assert await reconciliation.repair(drift)
    assert (await quota.usage(linked.tenant_id))[:2] == right
    assert await reconciliation.find_drift(linked.tenant_id) is None


async def test_a_reservation_without_an_upload_is_dropped(
    reconciliation: Reconciliation, database: MongoDatabase, quota: MongoQuotaStore
) -> None:
    linked = await every_kind(database, quota)
    right = (await quota.usage(linked.tenant_id))[:2]
    await quota.reserve(make_upload(tenant_id=linked.tenant_id), 99, None)
    drift = await reconciliation.find_drift(linked.tenant_id)
    assert drift is not None
    assert drift.actual.reserved - drift.expected.reserved == 99
    assert await reconciliation.repair(drift)
    assert (await quota.usage(linked.tenant_id))[:2] == right


async def test_a_missing_reservation_of_a_complete_file_is_repaired(
    reconciliation: Reconciliation, database: MongoDatabase, quota: MongoQuotaStore
) -> None:
    upload = complete_upload(Status.COMPLETE)
    await record(database, upload)
    drift = await reconciliation.find_drift(upload.tenant_id)
    assert drift is not None
    assert await reconciliation.repair(drift)
    assert await quota.charge(upload, SIZE)
    assert (await quota.usage(upload.tenant_id))[:2] == (SIZE, 0)


async def test_a_ledger_that_changed_since_it_was_read_is_not_repaired(
    reconciliation: Reconciliation, database: MongoDatabase, quota: MongoQuotaStore
) -> None:
    linked = await every_kind(database, quota)
    await set_ledger(database, linked, used=7)
    drift = await reconciliation.find_drift(linked.tenant_id)
    assert drift is not None
    await quota.reserve(make_upload(tenant_id=linked.tenant_id), 1, None)
    assert not await reconciliation.repair(drift)
    assert (await ledger(database, linked))["used"] == 7


class ChangingLedgers(MongoQuotaStore):
    """The ledgers, with a change between the first and the second comparison."""

    def __init__(self, database: MongoDatabase) -> None:
        super().__init__(database)
        self.looks = 0

    async def snapshot_read(self, tenant_id: str) -> Any:
        self.looks += 1
        snapshot, uploads = await super().snapshot_read(tenant_id)
        return replace(snapshot, used=snapshot.used + self.looks), uploads


async def test_a_changing_difference_is_not_drift(database: MongoDatabase, quota: MongoQuotaStore) -> None:
    linked = await every_kind(database, quota)
    store = ChangingLedgers(database)
    assert await Reconciliation(store, pause=0).find_drift(linked.tenant_id) is None
    assert store.looks == 2


class CompletingUploads(CommandListener):
    """Completes an upload after its tenant's ledger was read and before its records are."""

    def __init__(self, mongo_url: str, name: str, upload: Upload) -> None:
        self._database = MongoClient[dict[str, Any]](mongo_url)[name]
        self._upload = upload
        self.seen = 0

    def started(self, event: CommandStartedEvent) -> None: ...

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "find" and event.reply["cursor"]["ns"].endswith(".quotas"):
            holds: Any = {"$inc": {"reserved": SIZE}, "$set": {f"holds.{self._upload.upload_id}": SIZE}}
            self._database["quotas"].update_one({"tenant_id": self._upload.tenant_id}, holds)
            self._database["uploads"].insert_one({**vars(self._upload), "status": self._upload.status.value})
            self._database.client.close()
            self.seen += 1

    def failed(self, event: CommandFailedEvent) -> None: ...


async def test_a_request_between_two_comparisons_is_no_drift(
    mongo_url: str, database: MongoDatabase, quota: MongoQuotaStore
) -> None:
    linked = await every_kind(database, quota)
    between = CompletingUploads(mongo_url, database.name, complete_upload(Status.COMPLETE, tenant_id=linked.tenant_id))
    client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, event_listeners=[between])
    snapshot, uploads = await MongoQuotaStore(client[database.name]).snapshot_read(linked.tenant_id)
    client.close()
    assert between.seen == 1
    assert expected_ledger(snapshot, uploads) == snapshot
    assert (await quota.usage(linked.tenant_id))[:2] == (2 * SIZE, 4 * SIZE + 64)


async def test_each_ledger_is_due_once_a_day(database: MongoDatabase, quota: MongoQuotaStore) -> None:
    store = MongoQuotaStore(database)
    await quota.reserve(make_upload(), SIZE, None)
    first = [tenant async for tenant in _due(store)]
    assert first
    assert len(first) == len(set(first)) == await database["quotas"].count_documents({})
    assert await store.lease_due(60) is None
    yesterday = datetime.now(UTC) - timedelta(days=1, seconds=1)
    await database["quotas"].update_one({"tenant_id": first[0]}, {"$set": {"compared_at": yesterday}})
    assert [tenant async for tenant in _due(store)] == [first[0]]


async def _due(store: MongoQuotaStore) -> AsyncIterator[str]:
    while (tenant := await store.lease_due(24 * 3600)) is not None:
        yield tenant
