"""What nobody wants any more is removed, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.auth.callers import Caller
from common.mongo import MongoDatabase
from tests.support.services.upload import (
    UploadApi,
    folder_homes,
    make_removal,
    make_uploader,
    serving_uploads,
)
from tests.support.waiting import until
from upload_service.maintenance.purge import Collector, forget_tenant
from upload_service.model import Status
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
SIZE = len(FILE)
DAY = 24 * 3600


@dataclass(frozen=True)
class House:
    """A service, its database, and a collector that works when it is told to."""

    api: UploadApi
    database: MongoDatabase
    collector: Collector

    async def age(self, caller: Caller, **days: float) -> None:
        """Let a tenant's uploads be announced, and untouched for so long."""
        await until(self.all_announced)
        then = datetime.now(UTC) - timedelta(**days)
        await self.database["uploads"].update_many({"tenant_id": caller.tenant_id}, {"$set": {"updated_at": then}})

    async def all_announced(self) -> bool:
        return not await self.database["uploads"].count_documents({"announced": False})

    async def count(self, caller: Caller) -> int:
        return await self.database["uploads"].count_documents({"tenant_id": caller.tenant_id})


@pytest.fixture
async def house(settings: UploadSettings, database: MongoDatabase) -> AsyncIterator[House]:
    async with serving_uploads(settings) as api:
        store, quota = MongoUploadStore(database), MongoQuotaStore(database)
        removal = make_removal(store, quota, settings.installers)
        yield House(api, database, Collector(store, quota, removal, transfer_idle=DAY, unclaimed_age=DAY))


@pytest.mark.parametrize("tenant_id", ["", ".", "../victim"])
async def test_no_folder_but_a_tenants_is_removed(tmp_path: Path, tenant_id: str) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "installers" / "acme").mkdir(parents=True)
    with pytest.raises(ValueError, match="not a tenant's id"):
        await forget_tenant(tenant_id, folder_homes(tmp_path / "installers"))
    assert (tmp_path / "victim").exists()
    assert (tmp_path / "installers" / "acme").exists()


async def test_a_cancelled_file_id_is_free_after_a_day(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await house.api.give_up(caller, "f")
    await house.age(caller, days=1.01)
    await house.collector.collect()
    assert await house.count(caller) == 0
    assert (await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)).status == 200


async def test_a_cancelled_file_id_is_not_free_before_a_day(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await house.api.give_up(caller, "f")
    await house.age(caller, days=0.99)
    await house.collector.collect()
    assert (await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)).status == 409


async def test_a_transfer_idle_for_a_day_is_removed(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await house.age(caller, days=1.01)
    await house.collector.collect()
    assert (await house.count(caller), house.api.files(caller)) == (0, [])
    assert await house.api.usage(caller) == (0, 0)
    assert (await house.api.state(caller, "f")).status == 404


async def test_a_file_unclaimed_for_a_day_is_removed(house: House) -> None:
    caller = make_uploader()
    name = await house.api.upload(caller, FILE)
    await house.age(caller, days=1.01)
    await house.collector.collect()
    assert (await house.count(caller), house.api.files(caller)) == (0, [])
    assert await house.api.usage(caller) == (0, 0)
    assert (await house.api.claim(caller, name)).status == 404


async def test_what_is_younger_or_linked_stays(house: House) -> None:
    caller, old = make_uploader(), make_uploader()
    young = [await house.api.upload(caller, FILE)]
    await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    linked = await house.api.upload(old, FILE)
    await house.api.claim(old, linked)
    await house.age(caller, hours=23)
    await house.age(old, days=400)
    await house.collector.collect()
    assert house.api.files(caller) == sorted([*young, "upload_f.part"])
    assert house.api.files(old) == [linked]
    assert await house.api.usage(old) == (SIZE, 0)


async def test_a_transfer_that_a_request_works_on_stays(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, SIZE)
    await house.age(caller, days=2)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    await house.database["uploads"].update_one(
        {"tenant_id": caller.tenant_id, "file_id": "f"}, {"$set": {"lease_until": soon}}
    )
    await house.collector.collect()
    assert house.api.files(caller) == ["upload_f.part"]


async def test_a_deletion_that_was_interrupted_is_finished(house: House) -> None:
    caller = make_uploader()
    name = await house.api.upload(caller, FILE)
    await house.api.claim(caller, name)
    await house.database["uploads"].update_one(
        {"tenant_id": caller.tenant_id, "server_filename": name}, {"$set": {"status": Status.DELETING}}
    )
    await house.age(caller, minutes=2)
    await house.collector.collect()
    assert (await house.count(caller), house.api.files(caller)) == (0, [])
    assert await house.api.usage(caller) == (0, 0)


async def test_a_leftover_that_cannot_be_removed_keeps_no_other(house: House) -> None:
    stuck, caller = make_uploader(), make_uploader()
    for owner in (stuck, caller):
        await house.api.upload(owner, FILE)
    await house.age(stuck, days=3)
    await house.age(caller, days=2)
    (name,) = house.api.files(stuck)
    path = house.api.folder / stuck.tenant_id / name
    path.unlink()
    path.mkdir()
    await house.collector.collect()
    assert (await house.count(stuck), await house.count(caller)) == (1, 0)


async def test_a_file_is_either_claimed_or_collected(house: House) -> None:
    callers = [make_uploader() for _ in range(12)]
    names = [await house.api.upload(caller, FILE) for caller in callers]
    for caller in callers:
        await house.age(caller, days=2)
    claiming = asyncio.gather(*(house.api.claim(*pair) for pair in zip(callers, names, strict=True)))
    await house.collector.collect()
    claims = await claiming
    await house.collector.collect()
    for caller, name, claim in zip(callers, names, claims, strict=True):
        won = claim.status == 200
        assert house.api.files(caller) == ([name] if won else [])
        assert await house.api.usage(caller) == (SIZE if won else 0, 0)


async def test_what_was_settled_is_forgotten_after_a_while(house: House) -> None:
    caller = make_uploader()
    for _ in range(2):
        server_filename = await house.api.upload(caller, FILE)
        await until(house.all_announced)  # Until then the record of what is discarded stays.
        await house.api.ask(caller, "discard_installer", server_filename=server_filename)
    quotas = house.database["quotas"]
    before = await quotas.find_one({"tenant_id": caller.tenant_id})
    assert before is not None
    one, two = before["settled"]
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    await quotas.update_one({"tenant_id": caller.tenant_id}, {"$set": {f"settled.{one}": long_ago}})
    await house.collector.collect()
    after = await quotas.find_one({"tenant_id": caller.tenant_id})
    assert after is not None
    assert list(after["settled"]) == [two]


async def test_a_forgotten_tenant_has_neither_records_nor_files(house: House) -> None:
    caller, other = make_uploader(), make_uploader()
    for tenant in (caller, other):
        await house.api.claim(tenant, await house.api.upload(tenant, FILE))
    stores = MongoUploadStore(house.database), MongoQuotaStore(house.database)
    for _ in range(2):
        await forget_tenant(caller.tenant_id, folder_homes(house.api.folder), *stores)
    assert (await house.count(caller), await house.api.usage(caller)) == (0, (0, 0))
    assert not (house.api.folder / caller.tenant_id).exists()
    assert (await house.count(other), len(house.api.files(other))) == (1, 1)
