"""How the gateway knows tenants: asked once in a while, and no more of them remembered than it may."""

import asyncio
from ipaddress import ip_address
from typing import Any, cast

import pytest

from common.auth.callers import Caller, Kind
from common.errors import Unavailable, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import RESERVED
from gateway.routing import tenant_directory
from gateway.routing.tenant_directory import NoSuchTenant, TenantDirectory
from tests.support.tables import each

STAMP = "a stamp"


class AuthService:
    """Knows the tenants it is given, and counts what it is asked."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[str] = []
        self.problem: Exception | None = None

    async def json(self, caller: Caller, operation: str) -> dict[str, Any]:
        assert (operation, caller.kind) == ("find_tenant", Kind.SERVICE)
        self.asked.append(caller.tenant_id)
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


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("gateway.caching.response_cache.time", self)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def directory(auth_service: AuthService) -> TenantDirectory:
    return TenantDirectory(cast("ServiceClient", auth_service))


async def test_a_tenant_comes_with_its_settings(clock: Clock) -> None:
    found = await directory(AuthService("acme")).find("acme", STAMP)
    assert (found.client_authentication, found.allowed_networks) == (True, ("192.0.2.0/24",))
    assert (found.storage_quota, found.max_clients, found.version_key) == (5, 7, "installer")
    assert found.strict_installers


async def test_a_tenant_is_asked_about_again_after_a_while_only(clock: Clock) -> None:
    auth_service = AuthService("acme")
    known = directory(auth_service)
    for _ in range(3):
        await known.find("acme", STAMP)
    assert auth_service.asked == ["acme"]
    clock.now += tenant_directory.MAX_AGE
    await known.find("acme", STAMP)
    assert auth_service.asked == ["acme", "acme"]


async def test_an_unknown_tenant_is_remembered_and_forgotten_alike(clock: Clock) -> None:
    auth_service = AuthService()
    known = directory(auth_service)
    for _ in range(3):
        with pytest.raises(NoSuchTenant):
            await known.find("acme", STAMP)
    assert auth_service.asked == ["acme"]
    auth_service.known.add("acme")
    clock.now += tenant_directory.MAX_AGE
    assert (await known.find("acme", STAMP)).tenant_id == "acme"


@each("name", ["", "A", "a/b", "..", "-a", "é", "a" * 64, *sorted(RESERVED)])
def test_what_cannot_be_a_tenant_is_not_asked_about(name: str) -> None:
    auth_service = AuthService(name)
    with pytest.raises(NoSuchTenant):
        directory(auth_service).last_known_allows(name, ip_address("192.0.2.1"))
    assert not auth_service.asked


async def test_a_tenant_is_asked_about_again_at_once_when_its_stamp_is_another(clock: Clock) -> None:
    auth_service = AuthService("acme")
    known = directory(auth_service)
    for stamp in ("", "", "a", "a", "b", "b", ""):
        await known.find("acme", stamp)
    assert len(auth_service.asked) == 4


async def test_where_redis_is_away_a_tenant_is_known_for_the_same_while(clock: Clock) -> None:
    auth_service = AuthService("acme")
    known = directory(auth_service)
    await known.find("acme", STAMP)
    for _ in range(3):
        await known.find("acme", None)
    assert auth_service.asked == ["acme"]
    clock.now += tenant_directory.MAX_AGE
    for _ in range(3):
        await known.find("acme", None)
    assert auth_service.asked == ["acme", "acme"]
    await known.find("acme", STAMP)  # What was heard without a stamp may be from before it.
    assert auth_service.asked == ["acme"] * 3


async def test_no_earlier_answer_counts_while_a_tenant_is_being_changed(clock: Clock) -> None:
    auth_service = AuthService("acme")
    known = directory(auth_service)
    await known.find("acme", STAMP)
    for _ in range(2):
        await known.find("acme", None, changing=True)
    assert auth_service.asked == ["acme"] * 3


async def test_who_is_welcome_is_told_by_what_was_last_heard(clock: Clock) -> None:
    known = directory(AuthService("acme"))
    inside, outside = ip_address("192.0.2.1"), ip_address("192.0.3.1")
    assert not known.last_known_allows("acme", inside)
    await known.find("acme", STAMP)
    assert [known.last_known_allows("acme", address) for address in (inside, outside)] == [True, False]
    with pytest.raises(NoSuchTenant):
        await known.find("another", STAMP)
    assert not known.last_known_allows("another", inside)


async def test_a_service_that_is_away_is_not_remembered_as_an_answer(clock: Clock) -> None:
    auth_service = AuthService("acme")
    known = directory(auth_service)
    for problem in (Unavailable("away"), UpstreamProblem("broken", status=500, code="internal_error")):
        auth_service.problem = problem
        with pytest.raises(type(problem)):
            await known.find("acme", STAMP)
    auth_service.problem = None
    assert (await known.find("acme", STAMP)).tenant_id == "acme"


async def test_no_more_tenants_are_remembered_than_allowed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_directory, "MAX_TENANTS", 3)
    auth_service = AuthService("t0")
    known = directory(auth_service)
    for number in range(5):
        if number:
            with pytest.raises(NoSuchTenant):
                await known.find(f"t{number}", STAMP)
        else:
            await known.find("t0", STAMP)
    auth_service.asked.clear()
    for number in (4, 3, 2):
        with pytest.raises(NoSuchTenant):
            await known.find(f"t{number}", STAMP)
    assert auth_service.asked == []
    await known.find("t0", STAMP)
    assert auth_service.asked == ["t0"]


async def test_a_crowd_that_comes_at_once_asks_once() -> None:
    auth_service = AuthService("acme")
    tenants_known = directory(auth_service)

    found = await asyncio.gather(*(tenants_known.find("acme", STAMP) for _ in range(100)))

    assert ({tenant.tenant_id for tenant in found}, auth_service.asked) == ({"acme"}, ["acme"])


async def test_whoever_of_a_crowd_leaves_takes_the_answer_from_nobody() -> None:
    tenants_known = directory(AuthService("acme"))
    first, second = (asyncio.ensure_future(tenants_known.find("acme", STAMP)) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()

    assert (await second).tenant_id == "acme"


async def test_a_crowd_that_is_not_answered_asks_again_the_next_time() -> None:
    auth_service = AuthService("acme")
    tenants_known = directory(auth_service)
    auth_service.problem = Unavailable("away")

    found = await asyncio.gather(*(tenants_known.find("acme", STAMP) for _ in range(3)), return_exceptions=True)

    assert [type(problem) for problem in found] == [Unavailable] * 3
    auth_service.problem = None
    assert (await tenants_known.find("acme", STAMP)).tenant_id == "acme"
    assert len(auth_service.asked) == 2
