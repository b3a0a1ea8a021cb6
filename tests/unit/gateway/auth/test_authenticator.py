"""A caller is identified by the Bearer token first, then by the client token (sections 4.2 and 5)."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import Permission
from common.auth.sessions import Session, SessionCheck, Sessions
from common.errors import InvalidField, NotAuthenticated, Unavailable
from common.http.middleware import CLIENT_ADDRESS
from common.redis import RedisError
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.authenticator import TENANT_VERSION, TOKEN_LIMIT, Authenticator
from gateway.auth.directories import ClientDirectory, NetworkNotAllowed, PolicyDirectory, TenantDirectory, UserDirectory
from gateway.operations import Access, Operation
from gateway.routing import Target, caller_address
from gateway.settings import GatewaySettings
from tests.support.factories import KEYS
from tests.support.services.stand_ins import AuthStandIn, CatalogStandIn, RegistryStandIn
from tests.support.tables import each

SESSION, CLIENT, LONG = "a session", "a-client", "x" * (TOKEN_LIMIT + 1)


class FakeSessions:
    """Sessions with one token, unless Redis is away."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.touched: list[str] = []
        self.away = False
        self.version = "version"

    async def touch(self, tenant_id: str, token: str = "") -> SessionCheck:
        self.touched.append(token)
        if self.away:
            raise RedisError
        session = Session(tenant_id, "admin", "s1", 0) if token == SESSION else None
        return SessionCheck(self.version, session, self.version)

    async def check(self, tenant_id: str, token: str) -> Session:
        self.checked.append(token)
        if token != SESSION:
            raise NotAuthenticated("no")
        return Session(tenant_id, "admin", "s1", 0)


class AuthenticatorFixture:
    """An authenticator with stand-ins of the services."""

    def __init__(self, **settings: Any) -> None:
        self.sessions, self.catalog_service = FakeSessions(), CatalogStandIn()
        self.registry = RegistryStandIn(clients={("acme", CLIENT): ("c1", "")})
        tenants = {tenant_id: Tenant(tenant_id) for tenant_id in ("acme", "b")}
        self.auth_service = AuthStandIn(tenants=tenants, roles={("acme", "admin"): ["viewer"]})
        self.settings = GatewaySettings(internal_key=KEYS, session_key=KEYS, **settings)
        self.authenticator = Authenticator(
            self.settings,
            cast("Sessions", self.sessions),
            TenantDirectory(cast("ServiceClient", self.auth_service)),
            UserDirectory(cast("ServiceClient", self.auth_service)),
            ClientDirectory(cast("ServiceClient", self.registry)),
            PolicyDirectory(cast("ServiceClient", self.catalog_service)),
        )

    def allow_networks(self, *networks: str) -> None:
        self.auth_service.tenants["acme"] = Tenant("acme", allowed_networks=networks)

    async def identify(
        self, access: Access, *authorization: str, enforced: bool = False, form: str = "", winget: Sequence[str] = ()
    ) -> Caller:
        """The caller of an operation before the session is read."""
        visitor = Caller(Tenant("acme", client_authentication=enforced))
        request = request_of(authorization, form, winget)
        return await self.authenticator.identify(request, operation_for(access), visitor, SessionCheck("version"))

    async def authenticate(self, access: Access, *authorization: str) -> tuple[Caller, str | None]:
        """The caller, and the tenant version of the request."""
        request = request_of(authorization, "")
        caller = await self.authenticate_request(request, "acme", access)
        return caller, request[TENANT_VERSION]

    async def authenticate_request(
        self, request: web.Request, tenant_id: str, access: Access, client_token: str = ""
    ) -> Caller:
        request[CLIENT_ADDRESS] = caller_address(request, self.settings.trusted_proxies)
        target = Target(tenant_id, operation_for(access), ("x",), client_token=client_token)
        return await self.authenticator.authenticate(request, target)


def operation_for(access: Access) -> Operation:
    return Operation("POST", "x", "catalog_service", access, Permission.CATALOG_READ)


def request_of(authorization: tuple[str, ...], form: str, winget: Sequence[str] = ()) -> web.Request:
    headers = CIMultiDict([("Host", "localhost"), *(("Authorization", value) for value in authorization)])
    headers.extend([("Windows-Package-Manager", value) for value in winget])
    if not form:
        return make_mocked_request("POST", "/acme/x", headers, payload=EMPTY_PAYLOAD)
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    headers["Content-Length"] = str(len(form))
    content = StreamReader(Mock(), 1 << 16, loop=asyncio.get_running_loop())
    content.feed_data(form.encode())
    content.feed_eof()
    return make_mocked_request("POST", "/acme/x", headers, payload=content)


@pytest.fixture
def fixture() -> AuthenticatorFixture:
    return AuthenticatorFixture()


@pytest.mark.parametrize("access", [Access.OPEN, Access.SIGNED, Access.PAGE])
async def test_an_open_operation_reads_no_session(fixture: AuthenticatorFixture, access: Access) -> None:
    assert (await fixture.identify(access, f"Bearer {SESSION}", enforced=True)).kind is Kind.ANONYMOUS
    for _ in range(2):
        caller, _ = await fixture.authenticate(access, f"Bearer {SESSION}")
        assert caller.kind is Kind.ANONYMOUS
    assert (fixture.sessions.touched, fixture.sessions.checked) == (["", ""], [])


async def test_an_operation_for_administrators_requires_a_session(fixture: AuthenticatorFixture) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        caller = await fixture.identify(Access.ADMINISTRATOR, f"{scheme} {SESSION}")
        assert (caller.kind, caller.username, caller.session_id) == (Kind.ADMINISTRATOR, "admin", "s1")
    for authorization in ((), ("Bearer wrong",), (f"Bearer {CLIENT}",)):
        with pytest.raises(NotAuthenticated):
            await fixture.identify(Access.ADMINISTRATOR, *authorization, form=f"auth_token={CLIENT}")
    assert not fixture.registry.requests


@each(
    "authorization",
    [
        (SESSION,),
        ("Bearer",),
        ("Bearer ",),
        (f"Basic {SESSION}",),
        (f"Bearer{SESSION}",),
        (f"Bearer {LONG}",),
        (f"Bearer {SESSION}", f"Bearer {SESSION}"),
        (f"Bearer {SESSION}", "Basic x"),
    ],
)
async def test_a_malformed_authorization_header_reads_no_session(
    fixture: AuthenticatorFixture, authorization: tuple[str, ...]
) -> None:
    with pytest.raises(NotAuthenticated):
        await fixture.identify(Access.ADMINISTRATOR, *authorization)
    assert not fixture.sessions.checked


@pytest.mark.parametrize("enforced", [True, False])
async def test_a_session_comes_before_a_client_token(fixture: AuthenticatorFixture, enforced: bool) -> None:
    """Also before one that is known, and before the header of winget."""
    form = f"auth_token={CLIENT}&client=1"
    tokens: tuple[tuple[str, ...], ...] = ((f"Bearer {SESSION}",), (), (), (f"Bearer {SESSION}",))
    callers = [await fixture.identify(Access.CLIENT, *token, enforced=enforced, form=form) for token in tokens]
    assert [caller.client_id for caller in callers] == ["", "c1", "c1", ""]
    assert callers[0].kind is callers[3].kind is Kind.ADMINISTRATOR
    assert len(fixture.registry.requests) == 1
    caller = await fixture.identify(Access.PACKAGE_MANAGER, f"Bearer {SESSION}", enforced=enforced, winget=[CLIENT])
    assert (caller.kind, len(fixture.registry.requests)) == (Kind.ADMINISTRATOR, 1)


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize("authorization", [(), ("Bearer wrong",), ("Basic x",)])
@pytest.mark.parametrize("form", ["auth_token={}&client=1", "Auth-Token={}&Client=1"], ids=["new", "existing clients"])
async def test_a_client_token_counts_without_a_session(
    fixture: AuthenticatorFixture, authorization: tuple[str, ...], enforced: bool, form: str
) -> None:
    caller = await fixture.identify(Access.CLIENT, *authorization, enforced=enforced, form=form.format(CLIENT))
    assert (caller.kind, caller.client_id) == (Kind.CLIENT, "c1")
    assert fixture.registry.requests == [("identify_client", {"auth_token": CLIENT, "client": 1})]


@each("form", ["", "auth_token=", "auth_token=wrong", f"auth_token={LONG}"])
@each("authorization", [(), ("Bearer wrong",)])
async def test_client_authentication_decides_without_a_valid_token(
    fixture: AuthenticatorFixture, authorization: tuple[str, ...], form: str
) -> None:
    caller = await fixture.identify(Access.CLIENT, *authorization, enforced=False, form=form)
    assert caller.kind is Kind.ANONYMOUS
    with pytest.raises(NotAuthenticated):
        await fixture.identify(Access.CLIENT, *authorization, enforced=True, form=form)
    assert LONG not in str(fixture.registry.requests)


@each("access", [Access.OPEN, Access.PACKAGE_MANAGER])
@each("authorization", [(), (f"Bearer {SESSION}",)])
async def test_a_source_address_names_its_client_whatever_else_is_sent(
    fixture: AuthenticatorFixture, access: Access, authorization: tuple[str, ...]
) -> None:
    caller = await fixture.authenticate_request(request_of(authorization, ""), "acme", access, CLIENT)
    assert (caller.kind, caller.client_id) == (Kind.CLIENT, "c1")


async def test_a_source_address_is_refused_unless_its_client_may_use_it(fixture: AuthenticatorFixture) -> None:
    async def is_refused(token: str = CLIENT) -> bool:
        request = request_of((f"Bearer {SESSION}",), "")
        try:
            await fixture.authenticate_request(request, "acme", Access.PACKAGE_MANAGER, token)
        except NotAuthenticated:
            return True
        return False

    assert [await is_refused(token) for token in (CLIENT, "wrong", LONG)] == [False, True, True]
    fixture.auth_service.tenants["acme"] = Tenant("acme", source_address=False)
    fixture.sessions.version = "off"
    assert await is_refused()
    fixture.auth_service.tenants["acme"] = Tenant("acme")
    fixture.registry.no_address = {"c1"}
    fixture.sessions.version = "forbidden"
    assert await is_refused()


@each("number", ["-1", "1e3", "2147483648", "x", "0x1"])
async def test_an_invalid_client_number_is_refused_for_every_caller(fixture: AuthenticatorFixture, number: str) -> None:
    for authorization in ((), (f"Bearer {SESSION}",)):
        with pytest.raises(InvalidField):
            await fixture.identify(Access.CLIENT, *authorization, form=f"client={number}")


async def test_a_caller_has_the_address_host_and_tenant_of_the_request(fixture: AuthenticatorFixture) -> None:
    async def seen(tenant_id: str, host: str, address: str) -> tuple[str, str, str]:
        transport = Mock()
        transport.get_extra_info = {"peername": (address, 1)}.get
        request = make_mocked_request("POST", "/x", {"Host": host}, payload=EMPTY_PAYLOAD, transport=transport)
        caller = await fixture.authenticate_request(request, tenant_id, Access.OPEN)
        return caller.tenant_id, caller.base_url, caller.ip

    places = [
        ("acme", "a", "192.0.2.1"),
        ("acme", "a", "192.0.2.2"),
        ("acme", "b", "192.0.2.1"),
        ("b", "a", "192.0.2.1"),
    ]
    for tenant_id, host, address in places * 2:
        assert await seen(tenant_id, host, address) == (tenant_id, f"http://{host}/{tenant_id}", address)


async def test_a_caller_behind_a_proxy_has_the_address_and_host_that_the_proxy_names() -> None:
    fixture, transport = AuthenticatorFixture(trusted_proxies="10.0.0.0/8"), Mock()
    transport.get_extra_info = {"peername": ("10.0.0.1", 1)}.get
    for host, address in [("a", "192.0.2.1"), ("b", "192.0.2.1"), ("a", "192.0.2.2")] * 2:
        headers = {"Host": "inside", "X-Forwarded-For": address, "X-Forwarded-Host": host}
        request = make_mocked_request("POST", "/x", headers, payload=EMPTY_PAYLOAD, transport=transport)
        caller = await fixture.authenticate_request(request, "acme", Access.OPEN)
        assert (caller.base_url, caller.ip) == (f"http://{host}/acme", address)
    assert not fixture.authenticator._visitors.drop_first()  # Nothing is kept that is never used.


async def test_a_caller_has_the_settings_of_the_current_version(fixture: AuthenticatorFixture) -> None:
    await fixture.authenticate(Access.OPEN)
    fixture.sessions.version = "next"
    fixture.allow_networks("127.0.0.0/8")
    caller, version = await fixture.authenticate(Access.OPEN)
    assert (version, caller.tenant.allowed_networks) == ("next", ("127.0.0.0/8",))


@pytest.mark.parametrize("access", [Access.ADMINISTRATOR, Access.CLIENT])
async def test_one_redis_call_reads_session_and_version(fixture: AuthenticatorFixture, access: Access) -> None:
    await fixture.authenticate(Access.OPEN)  # The tenant's networks are cached now.
    fixture.sessions.touched.clear()

    caller, version = await fixture.authenticate(access, f"Bearer {SESSION}")

    assert (caller.kind, caller.session_id, version) == (Kind.ADMINISTRATOR, "s1", "version")
    assert (fixture.sessions.touched, fixture.sessions.checked) == ([SESSION], [])


async def test_a_session_of_an_unknown_tenant_is_read_after_the_network_check(fixture: AuthenticatorFixture) -> None:
    caller, _ = await fixture.authenticate(Access.ADMINISTRATOR, f"Bearer {SESSION}")
    assert caller.session_id == "s1"
    assert (fixture.sessions.touched, fixture.sessions.checked) == ([""], [SESSION])


async def test_a_request_from_another_network_renews_no_session(fixture: AuthenticatorFixture) -> None:
    fixture.allow_networks("203.0.113.0/24")
    for _ in range(2):
        with pytest.raises(NetworkNotAllowed):
            await fixture.authenticate(Access.ADMINISTRATOR, f"Bearer {SESSION}")
    assert (fixture.sessions.touched, fixture.sessions.checked) == (["", ""], [])


async def test_without_redis_only_requests_without_a_session_continue(fixture: AuthenticatorFixture) -> None:
    await fixture.authenticate(Access.OPEN)
    fixture.sessions.away = True
    assert (await fixture.authenticate(Access.CLIENT))[1] is None
    assert (await fixture.authenticate(Access.OPEN, f"Bearer {SESSION}"))[1] is None
    for access in (Access.CLIENT, Access.ADMINISTRATOR):
        with pytest.raises(RedisError):
            await fixture.authenticate(access, f"Bearer {SESSION}")


WINGETS = (CLIENT, f"{{'Token': '{CLIENT}'}}", f'{{"Token": "{CLIENT}"}}', f""" {{ 'TOKEN' : "{CLIENT}" }} """)


@each("header", WINGETS)
@each("enforced", [True, False])
async def test_winget_sends_a_client_token_in_its_own_header(
    fixture: AuthenticatorFixture, header: str, enforced: bool
) -> None:
    caller = await fixture.identify(Access.PACKAGE_MANAGER, enforced=enforced, winget=[header])
    assert (caller.kind, caller.client_id) == (Kind.CLIENT, "c1")


@each(
    "headers",
    [
        (),
        ("",),
        (f"{{'Key': '{CLIENT}'}}",),
        (f"{{'Token': '{CLIENT}'",),
        (f"{{'Token': '{CLIENT}\"}}",),
        (f"Token {CLIENT}",),
        (CLIENT, CLIENT),
        ("x" * 1025,),
        (f"{CLIENT}\u00e9",),
        (f"{{'Token': '{CLIENT}\u00e9'}}",),
    ],
)
async def test_a_malformed_winget_header_is_not_looked_up(
    fixture: AuthenticatorFixture, headers: tuple[str, ...]
) -> None:
    with pytest.raises(NotAuthenticated):
        await fixture.identify(Access.PACKAGE_MANAGER, enforced=True, winget=headers)
    assert (await fixture.identify(Access.PACKAGE_MANAGER, winget=headers)).kind is Kind.ANONYMOUS
    assert not fixture.registry.requests


async def test_only_the_catalog_needs_the_rings_of_the_tenant(fixture: AuthenticatorFixture) -> None:
    fixture.catalog_service.refusal = Unavailable("The catalog service does not answer.")
    for service, access, is_identified in (
        ("client_registry", Access.CLIENT, True),
        ("catalog_service", Access.CLIENT, False),
        ("catalog_service", Access.ADMINISTRATOR, True),
        ("auth_service", Access.OPEN, True),
    ):
        request = request_of((f"Bearer {SESSION}",) if access is Access.ADMINISTRATOR else (), f"auth_token={CLIENT}")
        request[CLIENT_ADDRESS] = caller_address(request, fixture.settings.trusted_proxies)
        target = Target("acme", replace(operation_for(access), service=service), ("x",))
        with nullcontext() if is_identified else pytest.raises(Unavailable):
            await fixture.authenticator.authenticate(request, target)
