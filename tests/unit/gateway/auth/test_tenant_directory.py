"""The gateway looks up tenants rarely, and caches a bounded number."""

import asyncio
from ipaddress import ip_address
from typing import Any, cast

import pytest

from common.auth.internal_tokens import Caller, Kind
from common.errors import Unavailable, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import RESERVED
from gateway.auth import directories
from gateway.auth.directories import NoSuchTenant, TenantDirectory
from tests.support.clock import Clock
from tests.support.tables import each

VERSION = "a version"


class AuthService:
    """An auth_service with some tenants that counts lookups."""

    def __init__(self, *tenant_ids: str) -> None:
        self.known = set(tenant_ids)
        self.lookups: list[str] = []
        self.problem: Exception | None = None

    async def json(self, caller: Caller, operation: str) -> dict[str, Any]:
        assert (operation, caller.kind) == ("find_tenant", Kind.SERVICE)
        self.lookups.append(caller.tenant_id)
        await asyncio.sleep(0)
        if self.problem:
            raise self.problem
        if caller.tenant_id not in self.known:
            raise UpstreamProblem("no", status=404, code="tenant_not_found")
        return {
            "tenant_id": caller.tenant_id,
            "client_authentication": True,
            "allowed_networks": ["192.0.2.0/24"],
            "storage_quota": 5,
            "max_clients": 7,
            "version_key": "installer",
            "strict_installers": True,
        }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("common.caching.time", clock)
    return clock


def directory(auth_service: AuthService) -> TenantDirectory:
    return TenantDirectory(cast("ServiceClient", auth_service))


async def test_a_tenant_has_its_settings(clock: Clock) -> None:
    tenant = await directory(AuthService("acme")).find("acme", VERSION)
    assert (tenant.client_authentication, tenant.allowed_networks) == (True, ("192.0.2.0/24",))
    assert (tenant.storage_quota, tenant.max_clients, tenant.version_key) == (5, 7, "installer")
    assert tenant.strict_installers


async def test_a_tenant_is_fetched_again_after_its_maximum_age(clock: Clock) -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    for _ in range(3):
        await tenants.find("acme", VERSION)
    assert auth_service.lookups == ["acme"]
    clock.now += directories.TENANT_MAX_AGE
    await tenants.find("acme", VERSION)
    assert auth_service.lookups == ["acme", "acme"]


async def test_an_unknown_tenant_is_cached_for_the_same_time(clock: Clock) -> None:
    auth_service = AuthService()
    tenants = directory(auth_service)
    for _ in range(3):
        with pytest.raises(NoSuchTenant):
            await tenants.find("acme", VERSION)
    assert auth_service.lookups == ["acme"]
    auth_service.known.add("acme")
    clock.now += directories.TENANT_MAX_AGE
    assert (await tenants.find("acme", VERSION)).tenant_id == "acme"


@each("name", ["", "A", "a/b", "..", "-a", "é", "a" * 64, *sorted(RESERVED)])
def test_an_invalid_tenant_id_is_not_looked_up(name: str) -> None:
    auth_service = AuthService(name)
    with pytest.raises(NoSuchTenant):
        directory(auth_service).last_known_allows(name, ip_address("192.0.2.1"))
    assert not auth_service.lookups


async def test_a_new_version_fetches_the_tenant_again(clock: Clock) -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    for version in ("", "", "a", "a", "b", "b", ""):
        await tenants.find("acme", version)
    assert len(auth_service.lookups) == 4


async def test_without_redis_a_tenant_is_cached_for_the_same_time(clock: Clock) -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    await tenants.find("acme", VERSION)
    for _ in range(3):
        await tenants.find("acme", None)
    assert auth_service.lookups == ["acme"]
    clock.now += directories.TENANT_MAX_AGE
    for _ in range(3):
        await tenants.find("acme", None)
    assert auth_service.lookups == ["acme", "acme"]
    await tenants.find("acme", VERSION)  # A cached tenant without a version may be older.
    assert auth_service.lookups == ["acme"] * 3


async def test_the_cache_is_not_used_while_a_tenant_is_being_changed(clock: Clock) -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    await tenants.find("acme", VERSION)
    for _ in range(2):
        await tenants.find("acme", None, is_changing=True)
    assert auth_service.lookups == ["acme"] * 3


async def test_the_last_known_networks_decide_before_the_lookup(clock: Clock) -> None:
    tenants = directory(AuthService("acme"))
    inside, outside = ip_address("192.0.2.1"), ip_address("192.0.3.1")
    assert not tenants.last_known_allows("acme", inside)
    await tenants.find("acme", VERSION)
    assert [tenants.last_known_allows("acme", address) for address in (inside, outside)] == [True, False]
    with pytest.raises(NoSuchTenant):
        await tenants.find("another", VERSION)
    assert not tenants.last_known_allows("another", inside)


async def test_an_error_of_auth_service_is_not_cached(clock: Clock) -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    for problem in (Unavailable("away"), UpstreamProblem("broken", status=500, code="internal_error")):
        auth_service.problem = problem
        with pytest.raises(type(problem)):
            await tenants.find("acme", VERSION)
    auth_service.problem = None
    assert (await tenants.find("acme", VERSION)).tenant_id == "acme"


async def test_the_number_of_cached_tenants_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "MAX_TENANTS", 3)
    auth_service = AuthService("t0")
    tenants = directory(auth_service)
    for number in range(5):
        if number:
            with pytest.raises(NoSuchTenant):
                await tenants.find(f"t{number}", VERSION)
        else:
            await tenants.find("t0", VERSION)
    auth_service.lookups.clear()
    for number in (4, 3, 2):
        with pytest.raises(NoSuchTenant):
            await tenants.find(f"t{number}", VERSION)
    assert auth_service.lookups == []
    await tenants.find("t0", VERSION)
    assert auth_service.lookups == ["t0"]


async def test_concurrent_lookups_share_one_request() -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)

    results = await asyncio.gather(*(tenants.find("acme", VERSION) for _ in range(100)))

    assert ({tenant.tenant_id for tenant in results}, auth_service.lookups) == ({"acme"}, ["acme"])


async def test_a_cancelled_lookup_does_not_cancel_the_others() -> None:
    tenants = directory(AuthService("acme"))
    first, second = (asyncio.ensure_future(tenants.find("acme", VERSION)) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()

    assert (await second).tenant_id == "acme"


async def test_a_failed_shared_lookup_is_repeated_the_next_time() -> None:
    auth_service = AuthService("acme")
    tenants = directory(auth_service)
    auth_service.problem = Unavailable("away")

    results = await asyncio.gather(*(tenants.find("acme", VERSION) for _ in range(3)), return_exceptions=True)

    assert [type(problem) for problem in results] == [Unavailable] * 3
    auth_service.problem = None
    assert (await tenants.find("acme", VERSION)).tenant_id == "acme"
    assert len(auth_service.lookups) == 2
