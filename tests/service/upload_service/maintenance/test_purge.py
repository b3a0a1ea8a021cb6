"""Stale uploads are removed, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.replicas import until_released
from tests.support.services.upload import (
    UploadApi,
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


@dataclass(frozen=True)
class Setup:
    """A service, its database, and a collector that a test starts."""

    api: UploadApi
    database: MongoDatabase
    collector: Collector

    async def age(self, caller: Caller, **days: float) -> None:
        """Mark a tenant's uploads as announced, and set how long ago they changed."""
        await until(self.all_announced)
        changed_at = datetime.now(UTC) - timedelta(**days)
        await self.database["uploads"].update_many(
            {"tenant_id": caller.tenant_id}, {"$set": {"updated_at": changed_at}}
        )

    async def all_announced(self) -> bool:
        return not await self.database["uploads"].count_documents({"work.announce": {"$exists": True}})

    async def count(self, caller: Caller) -> int:
        return await self.database["uploads"].count_documents({"tenant_id": caller.tenant_id})


@pytest.fixture
async def setup(settings: UploadSettings, database: MongoDatabase) -> AsyncIterator[Setup]:
    async with serving_uploads(settings) as api:
        store, quota = MongoUploadStore(database), MongoQuotaStore(database)
        removal = make_removal(store, quota, settings.installers)
        yield Setup(api, database, Collector(removal, transfer_idle=DAY, unclaimed_age=DAY))


@pytest.mark.parametrize("tenant_id", ["", ".", "../victim"])
async def test_only_the_folder_of_a_tenant_is_removed(tmp_path: Path, tenant_id: str) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "installers" / "acme").mkdir(parents=True)
    with pytest.raises(ValueError, match="not a tenant's id"):
        await forget_tenant(tenant_id, folder_backends(tmp_path / "installers"))
    assert (tmp_path / "victim").exists()
    assert (tmp_path / "installers" / "acme").exists()


async def test_a_cancelled_file_id_is_free_after_a_day(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await setup.api.cancel(caller, "f")
    await setup.age(caller, days=1.01)
    await setup.collector.collect()
    assert await setup.count(caller) == 0
    assert (await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)).status == 200


async def test_a_cancelled_file_id_is_not_free_before_a_day(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await setup.api.cancel(caller, "f")
    await setup.age(caller, days=0.99)
    await setup.collector.collect()
    assert (await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)).status == 409


async def test_a_transfer_idle_for_a_day_is_removed(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await until_released(setup.database, caller, "f")
    await setup.age(caller, days=1.01)
    await setup.collector.collect()
    assert (await setup.count(caller), setup.api.files(caller)) == (0, [])
    assert await setup.api.usage(caller) == (0, 0)
    assert (await setup.api.state(caller, "f")).status == 404


async def test_a_file_unclaimed_for_a_day_is_removed(setup: Setup) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    await setup.age(caller, days=1.01)
    await setup.collector.collect()
    assert (await setup.count(caller), setup.api.files(caller)) == (0, [])
    assert await setup.api.usage(caller) == (0, 0)
    assert (await setup.api.claim(caller, name)).status == 404


async def test_young_and_linked_files_are_kept(setup: Setup) -> None:
    caller, old = make_uploader(), make_uploader()
    young = [await setup.api.upload(caller, FILE)]
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    linked = await setup.api.upload(old, FILE)
    await setup.api.claim(old, linked)
    await setup.age(caller, hours=23)
    await setup.age(old, days=400)
    await setup.collector.collect()
    assert setup.api.files(caller) == sorted([*young, "progress", "upload_f.part"])
    assert setup.api.files(old) == [linked]
    assert await setup.api.usage(old) == (SIZE, 0)


async def test_a_transfer_with_a_lease_is_not_collected(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await setup.age(caller, days=2)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    await setup.database["uploads"].update_one(
        {"tenant_id": caller.tenant_id, "file_id": "f"}, {"$set": {"lease_until": soon}}
    )
    await setup.collector.collect()
    assert setup.api.files(caller) == ["progress", "upload_f.part"]


async def test_a_deletion_that_was_interrupted_is_finished(setup: Setup) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    await setup.api.claim(caller, name)
    await setup.database["uploads"].update_one(
        {"tenant_id": caller.tenant_id, "server_filename": name}, {"$set": {"status": Status.DELETING}}
    )
    await setup.age(caller, minutes=2)
    await setup.collector.collect()
    assert (await setup.count(caller), setup.api.files(caller)) == (0, [])
    assert await setup.api.usage(caller) == (0, 0)


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


async def test_a_file_is_either_claimed_or_collected(setup: Setup) -> None:
    callers = [make_uploader() for _ in range(12)]
    names = [await setup.api.upload(caller, FILE) for caller in callers]
    for caller in callers:
        await setup.age(caller, days=2)
    claiming = asyncio.gather(*(setup.api.claim(*pair) for pair in zip(callers, names, strict=True)))
    await setup.collector.collect()
    claims = await claiming
    await setup.collector.collect()
    for caller, name, claim in zip(callers, names, claims, strict=True):
        won = claim.status == 200
        assert setup.api.files(caller) == ([name] if won else [])
        assert await setup.api.usage(caller) == (SIZE if won else 0, 0)


async def test_settled_rows_are_deleted_after_a_while(setup: Setup) -> None:
    caller = make_uploader()
    for _ in range(2):
        server_filename = await setup.api.upload(caller, FILE)
        await until(setup.all_announced)  # Until then the records of the discarded files stay.
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
