"""Lookups of tenants, users, API tokens and clients: what each depends on, and how long it is cached."""

import time
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, cast

import pytest

from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import Role
from common.auth.sessions import Session
from common.auth.signing import new_token, new_token_id
from common.errors import NotAuthenticated, Unavailable, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import RESERVED, Tenant, VersionKey
from gateway.auth import directories
from gateway.auth.directories import (
    ClientDirectory,
    NoSuchTenant,
    TenantDirectory,
    TokenExpired,
    TokenNetworkNotAllowed,
    UnknownClient,
    UserDirectory,
)
from tests.support.clock import Clock
from tests.support.services.stand_ins import AuthStandIn, RegistryStandIn
from tests.support.tables import each

VERSION = "a version"
ACME = Caller(Tenant("acme"), ip="192.0.2.7")
OTHER = replace(ACME, tenant=Tenant("other"))
ADA, BOB = (Session("acme", name, f"session of {name}", 0) for name in ("ada", "bob"))
TOKEN = new_token(new_token_id())
AWAY = Unavailable("The service does not answer.")
BROKEN = UpstreamProblem("broken", status=500, code="internal_error")
FORM = b"auth_token=right&client=1"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("common.caching.time", clock)
    return clock


@pytest.fixture
def auth_service() -> AuthStandIn:
    tenant = Tenant("acme", allowed_networks=("192.0.2.0/24",))
    roles = {("acme", "ada"): ["publisher"], ("other", "ada"): ["viewer"]}
    return AuthStandIn(tenants={"acme": tenant}, roles=roles, tokens={TOKEN: {"package_ids": ["Acme.*"]}})


@pytest.fixture
def tenants(auth_service: AuthStandIn) -> TenantDirectory:
    return TenantDirectory(cast("ServiceClient", auth_service))


@pytest.fixture
def users(auth_service: AuthStandIn) -> UserDirectory:
    return UserDirectory(cast("ServiceClient", auth_service))


@pytest.fixture
def registry() -> RegistryStandIn:
    clients = {(tenant_id, "right"): (f"client of {tenant_id}", "pilot") for tenant_id in ("acme", "other")}
    return RegistryStandIn(clients=clients, hidden={"c1": ["A"], "c2": ["B"], "192.0.2.2": ["C"], "other": ["D"]})


@pytest.fixture
def clients(registry: RegistryStandIn) -> ClientDirectory:
    return ClientDirectory(cast("ServiceClient", registry))


async def test_a_tenant_has_its_settings(auth_service: AuthStandIn, tenants: TenantDirectory) -> None:
    tenant = Tenant(
        "acme",
        client_authentication=True,
        allowed_networks=("192.0.2.0/24",),
        storage_quota=5,
        max_clients=7,
        version_key=VersionKey("installer"),
        strict_installers=True,
    )
    auth_service.tenants["acme"] = tenant
    assert await tenants.find("acme", VERSION) == tenant


@each("version", [VERSION, None])
async def test_a_tenant_is_fetched_again_after_its_maximum_age(clock: Clock, version: str | None) -> None:
    """Also without Redis, which has the version."""
    auth_service = AuthStandIn(tenants={"acme": Tenant("acme")})
    tenants = TenantDirectory(cast("ServiceClient", auth_service))
    for lookups in (1, 2):
        for _ in range(3):
            await tenants.find("acme", version)
        assert len(auth_service.requests) == lookups
        clock.now += directories.TENANT_MAX_AGE


async def test_an_unknown_tenant_is_cached_for_the_same_time(
    clock: Clock, auth_service: AuthStandIn, tenants: TenantDirectory
) -> None:
    for _ in range(3):
        with pytest.raises(NoSuchTenant):
            await tenants.find("new", VERSION)
    assert len(auth_service.requests) == 1
    auth_service.tenants["new"] = Tenant("new")
    clock.now += directories.TENANT_MAX_AGE
    assert (await tenants.find("new", VERSION)).tenant_id == "new"


@each("name", ["", "A", "a/b", "..", "-a", "é", "a" * 64, *sorted(RESERVED)])
def test_an_invalid_tenant_id_is_not_looked_up(tenants: TenantDirectory, name: str) -> None:
    with pytest.raises(NoSuchTenant):
        tenants.last_known_allows(name, ip_address("192.0.2.1"))


async def test_the_cache_is_not_used_while_a_tenant_is_being_changed(
    auth_service: AuthStandIn, tenants: TenantDirectory
) -> None:
    await tenants.find("acme", VERSION)
    for _ in range(2):
        await tenants.find("acme", None, is_changing=True)
    assert len(auth_service.requests) == 3


async def test_the_last_known_networks_decide_before_the_lookup(tenants: TenantDirectory) -> None:
    inside, outside = ip_address("192.0.2.1"), ip_address("192.0.3.1")
    assert not tenants.last_known_allows("acme", inside)
    await tenants.find("acme", VERSION)
    assert [tenants.last_known_allows("acme", address) for address in (inside, outside)] == [True, False]
    with pytest.raises(NoSuchTenant):
        await tenants.find("another", VERSION)
    assert not tenants.last_known_allows("another", inside)


async def test_an_error_of_auth_service_is_not_an_unknown_tenant(
    auth_service: AuthStandIn, tenants: TenantDirectory
) -> None:
    for auth_service.refusal in (AWAY, BROKEN):
        with pytest.raises(type(auth_service.refusal)):
            await tenants.find("acme", VERSION)
    auth_service.refusal = None
    assert (await tenants.find("acme", VERSION)).tenant_id == "acme"


async def test_the_number_of_cached_tenants_is_bounded(
    auth_service: AuthStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MAX_TENANTS", 3)
    tenants = TenantDirectory(cast("ServiceClient", auth_service))
    for number in (*range(4), 3, 2, 1, 0):
        with pytest.raises(NoSuchTenant):
            await tenants.find(f"t{number}", VERSION)
    assert len(auth_service.requests) == 5


async def test_a_user_is_fetched_once_for_each_tenant(users: UserDirectory, auth_service: AuthStandIn) -> None:
    publisher = ACME.as_administrator("ada", "session of ada", (Role.PUBLISHER,))
    for _ in range(2):
        assert await users.by_session(ACME, ADA, "1") == publisher
        assert (await users.by_session(OTHER, ADA, "1")).roles == (Role.VIEWER,)
    assert len(auth_service.requests) == 2


@each("version", ["2", None])
async def test_another_version_of_the_tenant_has_the_new_roles(version: str | None) -> None:
    auth_service = AuthStandIn(roles={("acme", "ada"): ["publisher"]})
    users = UserDirectory(cast("ServiceClient", auth_service))
    await users.by_session(ACME, ADA, "1")
    auth_service.roles["acme", "ada"] = ["viewer"]
    assert (await users.by_session(ACME, ADA, version)).roles == (Role.VIEWER,)


async def test_a_deleted_user_is_not_authenticated(users: UserDirectory) -> None:
    with pytest.raises(NotAuthenticated):
        await users.by_session(ACME, BOB, "1")


async def test_only_known_users_and_tokens_go_on_while_auth_service_is_down(
    users: UserDirectory, auth_service: AuthStandIn
) -> None:
    await users.by_session(ACME, ADA, "1")
    await users.by_token(ACME, TOKEN, "1")
    for auth_service.refusal in (AWAY, BROKEN):
        assert (await users.by_session(ACME, ADA, "1")).roles == (Role.PUBLISHER,)
        assert (await users.by_token(ACME, TOKEN, "1")).username == "token:ci"
        for session, version in ((BOB, "1"), (ADA, "2"), (ADA, None)):
            with pytest.raises(type(auth_service.refusal)):
                await users.by_session(ACME, session, version)
        with pytest.raises(type(auth_service.refusal)):
            await users.by_token(ACME, TOKEN, "2")


@each("roles", [["root"], None])
async def test_an_answer_without_known_roles_gives_no_rights(roles: Any) -> None:
    users = UserDirectory(cast("ServiceClient", AuthStandIn(roles={("acme", "ada"): roles})))
    with pytest.raises((ValueError, TypeError)):
        await users.by_session(ACME, ADA, "1")


async def test_a_token_is_a_caller_with_its_rights(users: UserDirectory) -> None:
    caller = await users.by_token(ACME, TOKEN, "1")
    assert (caller.kind, caller.username, caller.creator, caller.session_id) == (
        Kind.ADMINISTRATOR,
        "token:ci",
        "ada",
        "",
    )
    assert (caller.roles, caller.packages) == ((Role.PUBLISHER,), ("Acme.*",))


async def test_a_token_is_looked_up_once_for_each_tenant_version(
    users: UserDirectory, auth_service: AuthStandIn
) -> None:
    for version, lookups in (("v1", 1), ("v1", 1), ("v2", 2), ("v2", 2)):
        await users.by_token(ACME, TOKEN, version)
        assert len(auth_service.requests) == lookups
    assert TOKEN.split("_")[2][:43] not in str(auth_service.requests)  # auth_service gets no secret.


async def test_a_mistyped_token_is_not_looked_up(users: UserDirectory, auth_service: AuthStandIn) -> None:
    last = "0" if TOKEN[-1] != "0" else "1"
    for wrong in (TOKEN[:-1], TOKEN + "0", TOKEN[:-1] + last, TOKEN.swapcase(), "pkgr_"):
        with pytest.raises(NotAuthenticated):
            await users.by_token(ACME, wrong, "1")
    assert auth_service.requests == []


async def test_an_unknown_token_is_refused(users: UserDirectory) -> None:
    with pytest.raises(NotAuthenticated) as error:
        await users.by_token(ACME, new_token(new_token_id()), "1")
    assert error.value.code == "not_authenticated"


async def test_a_token_expires_while_it_is_cached(
    users: UserDirectory, auth_service: AuthStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth_service.tokens[TOKEN] = {"expires_at": time.time() + 60}
    await users.by_token(ACME, TOKEN, "1")
    monkeypatch.setattr(time, "time", lambda: auth_service.tokens[TOKEN]["expires_at"])
    with pytest.raises(TokenExpired) as error:
        await users.by_token(ACME, TOKEN, "1")
    assert (error.value.status, error.value.code, len(auth_service.requests)) == (401, "token_expired", 1)


@each("network", ["192.0.2.0/24", "192.0.2.7", "192.0.2.1-192.0.2.9"])
async def test_a_token_counts_in_its_networks_only(network: str) -> None:
    users = UserDirectory(cast("ServiceClient", AuthStandIn(tokens={TOKEN: {"networks": [network]}})))
    assert (await users.by_token(ACME, TOKEN, "1")).ip == ACME.ip
    for other in ("198.51.100.7", "2001:db8::1"):
        with pytest.raises(TokenNetworkNotAllowed) as error:
            await users.by_token(replace(ACME, ip=other), TOKEN, "1")
        assert (error.value.status, error.value.code) == (403, "network_not_allowed")


async def test_an_entra_user_is_fetched_once_for_each_set_of_rules(
    users: UserDirectory, auth_service: AuthStandIn
) -> None:
    rows: tuple[tuple[tuple[tuple[str, str], ...], str], ...] = (
        ((), ""),
        ((("Any", "pilot"),), "pilot"),
        ((("Any", "broad"), ("Any", "pilot")), "broad"),
    )
    for _ in range(2):
        for rules, ring in rows:
            assert await users.by_entra_token(ACME, "a token", rules, "1") == ACME.as_client("", ring)
    assert len(auth_service.requests) == len(rows)


async def test_each_tenant_token_address_and_program_is_fetched_once(
    clients: ClientDirectory, registry: RegistryStandIn
) -> None:
    elsewhere = replace(ACME, ip="192.0.2.2")
    for _ in range(2):
        for visitor, program in ((ACME, 1), (OTHER, 1), (elsewhere, 1), (ACME, 0)):
            client = visitor.as_client(f"client of {visitor.tenant_id}", "pilot")
            assert await clients.identify(visitor, "right", program, "") == client
    assert len(registry.requests) == 4
    assert "right" not in repr(vars(clients._known._entries))


async def test_an_unknown_token_of_a_client_is_looked_up_each_time(
    clients: ClientDirectory, registry: RegistryStandIn
) -> None:
    for _ in range(2):
        with pytest.raises(UnknownClient):
            await clients.identify(ACME, "wrong", 1, "1", form=FORM)
    assert len(registry.requests) == 2
    assert clients.known(ACME, FORM, "1") is None


async def test_hidden_packages_depend_on_client_and_address(clients: ClientDirectory) -> None:
    elsewhere = replace(ACME, ip="192.0.2.2")
    callers = [ACME.as_client("c1"), ACME.as_client("c2"), elsewhere.as_client("c1"), OTHER.as_client("c1")]
    digests = [await clients.hidden_from(client, "") for client in callers * 2]
    assert len(set(digests)) == len(callers)
    assert digests[: len(callers)] == digests[len(callers) :]


async def test_a_known_form_is_of_one_tenant_address_and_version(clients: ClientDirectory) -> None:
    assert clients.known(ACME, FORM, "1") is None
    client = ACME.as_client("client of acme", "pilot")
    assert await clients.identify(ACME, "right", 1, "1", form=FORM) == client

    assert clients.known(ACME, FORM, "1") == client
    assert clients.known(ACME, b"auth_token=right&client=2", "1") is None
    assert clients.known(ACME, FORM, "2") is None
    assert clients.known(ACME, FORM, None) is None
    assert clients.known(replace(ACME, ip="192.0.2.2"), FORM, "1") is None
    assert clients.known(OTHER, FORM, "1") is None
    assert "right" not in repr(vars(clients._forms))
