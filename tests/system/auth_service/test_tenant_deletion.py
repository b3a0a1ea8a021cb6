"""An operator deletes a tenant with all its data, and nothing else."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from pymongo.errors import AutoReconnect

from auth_service.tenants.store import MongoTenantStore
from common.auth.sessions import Sessions
from common.errors import InvalidField, NotAuthenticated
from common.mongo import MongoError, open_database
from common.redis import RedisError, open_redis
from common.settings import BadSetting
from deploy.local.folder import Addresses
from deploy.operator import tenants
from deploy.operator.tenants import delete_tenant, open_operator
from tests.support.factories import KEYS, make_tenant
from tests.support.step_faults import Fault, Steps


@pytest.fixture
def addresses(mongo_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Addresses:
    """The stores, without a wait for the caches of gateways."""
    monkeypatch.setattr(tenants, "CACHES_EXPIRED", 0)
    return Addresses("", mongo_url, redis_url)


async def test_an_invalid_id_deletes_nothing(addresses: Addresses, tmp_path: Path) -> None:
    installers = tmp_path / "installers"
    for folder in (tmp_path / "victim", installers / "acme", installers / "UPPER", installers / "a" / "b"):
        folder.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for tenant_id in ("../victim", "", ".", "UPPER", "a/b"):
        with pytest.raises(InvalidField):
            await delete_tenant(addresses, installers, tenant_id)
        assert sorted(tmp_path.rglob("*")) == before, tenant_id


async def test_deleting_a_missing_tenant_removes_its_leftovers(addresses: Addresses, tmp_path: Path) -> None:
    tenant = make_tenant()
    async with open_operator(addresses) as operator:
        await operator.tenants.create(tenant)
    assert await delete_tenant(addresses, tmp_path, tenant.tenant_id)
    (tmp_path / tenant.tenant_id).mkdir()
    assert not await delete_tenant(addresses, tmp_path, tenant.tenant_id)
    assert not (tmp_path / tenant.tenant_id).exists()


async def test_a_tenant_stays_complete_if_its_objects_cannot_be_deleted(addresses: Addresses, tmp_path: Path) -> None:
    tenant = make_tenant()
    async with open_operator(addresses) as operator, open_database(addresses.mongo_url, "upload") as upload:
        await operator.tenants.create(tenant)
        record = {"tenant_id": tenant.tenant_id, "file_id": "f", "upload_id": uuid4().hex, "home": "s3"}
        await upload["uploads"].insert_one(record)
        with pytest.raises(BadSetting, match="S3_URL"):
            await delete_tenant(addresses, tmp_path, tenant.tenant_id)
        assert tenant in await operator.tenants.list()
        await upload["uploads"].delete_one({"tenant_id": tenant.tenant_id})


async def test_a_session_opened_during_the_deletion_ends(
    addresses: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, tokens = make_tenant(), list[str]()
    async with open_operator(addresses) as operator, open_redis(addresses.redis_url) as redis:
        sessions = Sessions(redis, keys=KEYS, lifetime=60, idle=60)

        async def open_session(_: float) -> None:
            """Replaces the wait for the caches of gateways."""
            assert tenant not in await operator.tenants.list()
            tokens.append(await sessions.open(tenant.tenant_id, "helga"))

        monkeypatch.setattr(tenants, "asyncio", SimpleNamespace(sleep=open_session))
        await operator.tenants.create(tenant)
        await delete_tenant(addresses, tmp_path, tenant.tenant_id)
        (token,) = tokens
        with pytest.raises(NotAuthenticated):
            await sessions.check(tenant.tenant_id, token)


async def test_a_deleted_tenants_known_addresses_are_deleted(addresses: Addresses, tmp_path: Path) -> None:
    tenant = make_tenant()
    async with open_operator(addresses) as operator:
        await operator.tenants.create(tenant)
        await operator.known_networks.add(tenant.tenant_id, "helga", "192.0.2.1")

        await delete_tenant(addresses, tmp_path, tenant.tenant_id)

        assert not await operator.known_networks.contains(tenant.tenant_id, "helga", "192.0.2.1")


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.full, id="all"), pytest.param(5, id="some")])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
async def test_a_deletion_retried_after_any_fault_ends_every_session(
    addresses: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, each: int
) -> None:
    """Every `each`-th step fails once."""
    steps = Steps(fault=fault)
    steps.watch_redis(monkeypatch)
    steps.watch(monkeypatch, MongoTenantStore, "delete", AutoReconnect("a fault of this test"))
    async with open_operator(addresses) as operator, open_redis(addresses.redis_url) as redis:
        sessions = Sessions(redis, keys=KEYS, lifetime=60, idle=60)

        async def count_remaining() -> int:
            """Delete a tenant, with a retry after a fault. Returns the number of remaining sessions."""
            tenant = make_tenant()
            await operator.tenants.create(tenant)
            tokens = [await sessions.open(tenant.tenant_id, name) for name in ("ada", "ada", "helga")]
            delete = partial(delete_tenant, addresses, tmp_path, tenant.tenant_id)
            try:
                await steps.run(delete)
            except (RedisError, MongoError):
                await delete()
            return len([token for token in tokens if await sessions.is_alive(sessions.parse_token(token))])

        assert await count_remaining() == 0
        assert steps.count > 4
        for step in range(1, steps.count + 1, each):
            steps.failing_step = step
            assert await count_remaining() == 0, f"step {step}"
