"""Who calls: the Bearer token first, then the client token, as sections 4.2 and 5 say."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from common.auth.callers import Caller, Kind
from common.auth.sessions import Session, SessionCheck, Sessions
from common.errors import InvalidField, NotAuthenticated
from common.redis import RedisError
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.authenticator import TOKEN_LIMIT, Authenticator
from gateway.auth.client_directory import ClientDirectory
from gateway.operations import Access, Operation
from tests.support.tables import each

SESSION, CLIENT, LONG = "a session", "a-client", "x" * (TOKEN_LIMIT + 1)


class OneSession:
    """Knows one session token, unless Redis is away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.looked: list[str] = []
        self.away = False

    async def touch(self, tenant_id: str, token: str = "") -> SessionCheck:
        self.looked.append(token)
        if self.away:
            raise RedisError
        return SessionCheck("stamp", Session(tenant_id, "admin", "s1", 0) if token == SESSION else None)

    async def check(self, tenant_id: str, token: str) -> Session:
        self.asked.append(token)
        if token != SESSION:
            raise NotAuthenticated("no")
        return Session(tenant_id, "admin", "s1", 0)


class OneClient:
    """Knows one client token."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def json(self, caller: Caller, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        assert operation == "identify_client"
        assert caller.kind is Kind.ANONYMOUS
        self.asked.append(body)
        return {"client_id": "c1" if body["auth_token"] == CLIENT else None}


class Gate:
    """A gatekeeper of stand-ins, and what it asked them."""

    def __init__(self) -> None:
        self.sessions, self.clients = OneSession(), OneClient()
        clients = ClientDirectory(cast("ServiceClient", self.clients))
        self.keeper = Authenticator(cast("Sessions", self.sessions), clients)

    async def let_in(
        self, access: Access, *authorization: str, enforced: bool = False, form: str = "", winget: Sequence[str] = ()
    ) -> Caller:
        """The caller of an operation of a tenant of whom nothing is known before."""
        operation = Operation("POST", "x", "catalog_service", access)
        visitor = Caller(Tenant("acme", client_authentication=enforced))
        request = request_of(authorization, form, winget)
        return await self.keeper.identify(request, operation, visitor, SessionCheck("stamp"))

    async def look(self, access: Access, *authorization: str, welcome: bool = True) -> SessionCheck:
        operation = Operation("POST", "x", "catalog_service", access)
        return await self.keeper.look(request_of(authorization, ""), operation, "acme", welcome=welcome)


def request_of(authorization: tuple[str, ...], form: str, winget: Sequence[str] = ()) -> web.Request:
    headers = CIMultiDict([("Authorization", value) for value in authorization])
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
def gate() -> Gate:
    return Gate()


@each("access", [Access.OPEN, Access.SIGNED, Access.PAGE])
async def test_an_open_operation_asks_for_nothing(gate: Gate, access: Access) -> None:
    caller = await gate.let_in(access, f"Bearer {SESSION}", enforced=True)
    assert caller.kind is Kind.ANONYMOUS
    assert not gate.sessions.asked


async def test_an_administrators_operation_takes_a_session_only(gate: Gate) -> None:
    caller = await gate.let_in(Access.ADMINISTRATOR, f"Bearer {SESSION}")
    assert (caller.kind, caller.username, caller.session_id) == (Kind.ADMINISTRATOR, "admin", "s1")
    for authorization in ((), ("Bearer wrong",), (f"Bearer {CLIENT}",)):
        with pytest.raises(NotAuthenticated):
            await gate.let_in(Access.ADMINISTRATOR, *authorization, form=f"auth_token={CLIENT}")
    assert not gate.clients.asked


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
async def test_a_header_that_is_no_bearer_token_is_not_even_looked_up(
    gate: Gate, authorization: tuple[str, ...]
) -> None:
    with pytest.raises(NotAuthenticated):
        await gate.let_in(Access.ADMINISTRATOR, *authorization)
    assert not gate.sessions.asked


@each("scheme", ["bearer", "BEARER", "Bearer"])
async def test_the_schemes_letter_case_does_not_matter(gate: Gate, scheme: str) -> None:
    assert (await gate.let_in(Access.ADMINISTRATOR, f"{scheme} {SESSION}")).kind is Kind.ADMINISTRATOR


@pytest.mark.parametrize("enforced", [True, False])
async def test_a_session_comes_before_a_client_token(gate: Gate, enforced: bool) -> None:
    caller = await gate.let_in(Access.CLIENT, f"Bearer {SESSION}", enforced=enforced, form=f"auth_token={CLIENT}")
    assert (caller.kind, caller.client_id) == (Kind.ADMINISTRATOR, "")
    assert not gate.clients.asked


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize("authorization", [(), ("Bearer wrong",), ("Basic x",)])
async def test_a_client_token_counts_where_there_is_no_session(
    gate: Gate, authorization: tuple[str, ...], enforced: bool
) -> None:
    form = f"auth_token={CLIENT}&client=1"
    caller = await gate.let_in(Access.CLIENT, *authorization, enforced=enforced, form=form)
    assert (caller.kind, caller.client_id) == (Kind.CLIENT, "c1")
    assert gate.clients.asked == [{"auth_token": CLIENT, "client": 1}]


async def test_existing_clients_spellings_are_known(gate: Gate) -> None:
    caller = await gate.let_in(Access.CLIENT, enforced=True, form=f"Auth-Token={CLIENT}&Client=1")
    assert caller.client_id == "c1"


@each("form", ["", "auth_token=", "auth_token=wrong", f"auth_token={LONG}"])
@each("authorization", [(), ("Bearer wrong",)])
async def test_where_none_is_valid_enforcement_decides(gate: Gate, authorization: tuple[str, ...], form: str) -> None:
    caller = await gate.let_in(Access.CLIENT, *authorization, enforced=False, form=form)
    assert caller.kind is Kind.ANONYMOUS
    with pytest.raises(NotAuthenticated):
        await gate.let_in(Access.CLIENT, *authorization, enforced=True, form=form)


async def test_a_token_too_long_to_be_one_is_not_asked_about(gate: Gate) -> None:
    await gate.let_in(Access.CLIENT, form=f"auth_token={LONG}")
    assert not gate.clients.asked


@each("number", ["-1", "1e3", "2147483648", "x", "0x1"])
async def test_a_client_number_that_is_none_is_refused_whoever_calls(gate: Gate, number: str) -> None:
    for authorization in ((), (f"Bearer {SESSION}",)):
        with pytest.raises(InvalidField):
            await gate.let_in(Access.CLIENT, *authorization, form=f"client={number}")


@pytest.mark.parametrize("access", [Access.ADMINISTRATOR, Access.CLIENT])
async def test_a_session_is_looked_at_together_with_the_stamp(gate: Gate, access: Access) -> None:
    look = await gate.look(access, f"Bearer {SESSION}")

    visitor = Caller(Tenant("acme"))
    operation = Operation("POST", "x", "catalog_service", access)
    caller = await gate.keeper.identify(request_of((f"Bearer {SESSION}",), ""), operation, visitor, look)

    assert (caller.kind, caller.session_id, look.stamp) == (Kind.ADMINISTRATOR, "s1", "stamp")
    assert (gate.sessions.looked, gate.sessions.asked) == ([SESSION], [])


async def test_a_session_is_not_used_by_whom_the_tenant_does_not_let_in(gate: Gate) -> None:
    assert (await gate.look(Access.ADMINISTRATOR, f"Bearer {SESSION}", welcome=False)).session is None
    assert gate.sessions.looked == [""]


@pytest.mark.parametrize("access", [Access.OPEN, Access.SIGNED, Access.PAGE])
async def test_what_needs_no_session_looks_at_none(gate: Gate, access: Access) -> None:
    assert (await gate.look(access, f"Bearer {SESSION}")).session is None
    assert gate.sessions.looked == [""]


async def test_where_redis_is_away_only_those_without_a_session_go_on(gate: Gate) -> None:
    gate.sessions.away = True
    assert (await gate.look(Access.CLIENT)).stamp is None
    assert (await gate.look(Access.OPEN, f"Bearer {SESSION}")).stamp is None
    for access in (Access.CLIENT, Access.ADMINISTRATOR):
        with pytest.raises(RedisError):
            await gate.look(access, f"Bearer {SESSION}")


WINGETS = (CLIENT, f"{{'Token': '{CLIENT}'}}", f'{{"Token": "{CLIENT}"}}', f""" {{ 'TOKEN' : "{CLIENT}" }} """)


@each("header", WINGETS)
@each("enforced", [True, False])
async def test_winget_shows_a_clients_token_in_its_own_header(gate: Gate, header: str, enforced: bool) -> None:
    caller = await gate.let_in(Access.PACKAGE_MANAGER, enforced=enforced, winget=[header])
    assert (caller.kind, caller.client_id) == (Kind.CLIENT, "c1")


async def test_winget_may_show_a_session_too(gate: Gate) -> None:
    caller = await gate.let_in(Access.PACKAGE_MANAGER, f"Bearer {SESSION}", enforced=True, winget=[CLIENT])
    assert caller.kind is Kind.ADMINISTRATOR
    assert not gate.clients.asked


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
async def test_a_header_of_wingets_that_has_no_token_is_not_even_looked_up(
    gate: Gate, headers: tuple[str, ...]
) -> None:
    with pytest.raises(NotAuthenticated):
        await gate.let_in(Access.PACKAGE_MANAGER, enforced=True, winget=headers)
    assert (await gate.let_in(Access.PACKAGE_MANAGER, winget=headers)).kind is Kind.ANONYMOUS
    assert not gate.clients.asked
