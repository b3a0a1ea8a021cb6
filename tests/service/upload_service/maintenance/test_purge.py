"""Stale uploads are removed, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.replicas import until_released
from tests.support.services.stored import Stored
from tests.support.services.upload import (
    folder_backends,
    make_removal,
    make_uploader,
    serving_uploads,
)
from tests.support.wait import until
from upload_service.model import Status
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.uploads.claims import Collector, forget_tenant
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
SIZE = len(FILE)
DAY = 24 * 3600


@dataclass
class Setup(Stored):
    """A service, its database, and a collector that a test starts."""

    collector: Collector


@pytest.fixture
async def setup(settings: UploadSettings, database: MongoDatabase) -> AsyncIterator[Setup]:
    async with serving_uploads(settings) as api:
        store, quota = MongoUploadStore(database), MongoQuotaStore(database)
        removal = make_removal(store, quota, settings.installers)
        yield Setup(api, database, Collector(removal, transfer_idle=DAY, unclaimed_age=DAY))


async def expect_nothing(setup: Setup, caller: Caller) -> None:
    found = (await setup.count(caller), setup.api.files(caller), await setup.api.usage(caller))
    assert found == (0, [], (0, 0))


@pytest.mark.parametrize(("days", "status"), [(0.99, 409), (1.01, 200)])
async def test_a_cancelled_file_id_is_free_after_a_day(setup: Setup, days: float, status: int) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await setup.api.cancel(caller, "f")
    await setup.age(caller, days=days)
    await setup.collector.collect()
    assert await setup.count(caller) == (status == 409)
    assert (await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)).status == status


async def test_idle_transfers_and_unclaimed_files_of_a_day_ago_are_removed(setup: Setup) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await until_released(setup.database, caller, "f")
    await setup.age(caller, days=1.01)
    await setup.collector.collect()
    await expect_nothing(setup, caller)
    assert (await setup.api.state(caller, "f")).status == 404
    assert (await setup.api.claim(caller, name)).status == 404


async def test_young_and_linked_files_are_kept(setup: Setup) -> None:
    caller, old = make_uploader(), make_uploader()
    young, linked = await setup.api.upload(caller, FILE), await setup.api.upload(old, FILE)
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await setup.api.claim(old, linked)
    await setup.age(caller, hours=23)
    await setup.age(old, days=400)
    await setup.collector.collect()
    assert setup.api.files(caller) == sorted([young, "progress", "upload_f.part"])
    assert (setup.api.files(old), await setup.api.usage(old)) == ([linked], (SIZE, 0))


async def test_a_deletion_that_was_interrupted_is_finished(setup: Setup) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    await setup.api.claim(caller, name)
    await setup.change(caller, status=Status.DELETING)
    await setup.age(caller, minutes=2)
    await setup.collector.collect()
    await expect_nothing(setup, caller)


async def test_an_unremovable_leftover_does_not_block_others(setup: Setup) -> None:
    stuck, caller = make_uploader(), make_uploader()
    for owner in (stuck, caller):
        await setup.api.upload(owner, FILE)
    await setup.age(stuck, days=3)
    await setup.age(caller, days=2)
    (name,) = setup.api.files(stuck)
    path = setup.api.folder / stuck.tenant_id / name
    path.unlink()
    path.mkdir()
    await setup.collector.collect()
    assert (await setup.count(stuck), await setup.count(caller)) == (1, 0)


@pytest.mark.parametrize("races", [30, pytest.param(100, marks=pytest.mark.full)])
async def test_a_file_is_claimed_or_collected_and_never_both(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch, races: int
) -> None:
    monkeypatch.setattr("upload_service.app.COLLECTION_PAUSE", 0)
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        uploads = database["uploads"]
        names = await asyncio.gather(*(api.upload(caller, FILE) for _ in range(races)))
        await Stored(api, database).until_announced()  # A file that is being announced is collected a minute later.

        async def age(name: str) -> None:
            query = {"tenant_id": caller.tenant_id, "server_filename": name}
            await uploads.update_one(query, {"$set": {"updated_at": datetime.now(UTC) - timedelta(days=2)}})

        async def race(name: str) -> int:
            """The claim and the collector see a file at the same moment."""
            _, answer = await asyncio.gather(age(name), api.claim(caller, name, f"version of {name}"))
            return answer.status

        async def settled() -> bool:
            return await uploads.count_documents({"tenant_id": caller.tenant_id, "status": {"$ne": "linked"}}) == 0

        statuses = {name: await race(name) for name in names}
        assert set(statuses.values()) <= {200, 404}
        await until(settled)
        won = {name for name, status in statuses.items() if status == 200}
        assert set(api.files(caller)) == won
        for name in won:
            assert (await api.get(api.address(caller, name))).body == FILE
        assert await api.usage(caller) == (len(won) * SIZE, 0)


async def test_settled_rows_are_deleted_after_a_while(setup: Setup) -> None:
    caller = make_uploader()
    for _ in range(2):
        server_filename = await setup.api.upload(caller, FILE)
        await setup.until_announced()  # Until then the records of the discarded files stay.
        await setup.api.post(caller, "discard_installer", server_filename=server_filename)
    quotas = setup.database["quotas"]
    before = await quotas.find_one({"tenant_id": caller.tenant_id})
    assert before is not None
    first, second = before["settled"]
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    await quotas.update_one({"tenant_id": caller.tenant_id}, {"$set": {f"settled.{first}": long_ago}})
    await setup.collector.collect()
    after = await quotas.find_one({"tenant_id": caller.tenant_id})
    assert after is not None
    assert list(after["settled"]) == [second]


async def test_a_deleted_tenant_has_neither_records_nor_files(setup: Setup) -> None:
    caller, other = make_uploader(), make_uploader()
    for tenant in (caller, other):
        await setup.api.claim(tenant, await setup.api.upload(tenant, FILE))
    stores = MongoUploadStore(setup.database), MongoQuotaStore(setup.database)
    for _ in range(2):
        await forget_tenant(caller.tenant_id, folder_backends(setup.api.folder), *stores)
    assert (await setup.count(caller), await setup.api.usage(caller)) == (0, (0, 0))
    assert not (setup.api.folder / caller.tenant_id).exists()
    assert (await setup.count(other), len(setup.api.files(other))) == (1, 1)
