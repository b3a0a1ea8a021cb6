"""Direct calls of every route with internal tokens, and forged sessions and passwords at the gateway."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import product

import jwt
import pytest
from aiohttp import ClientSession, UnixConnector
from yarl import URL

from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT
from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.auth.signing import ALGORITHM
from gateway.operations import OPERATIONS, UPLOAD, Access
from tests.support.api import Answer, read_answer
from tests.support.factories import KEY, make_caller, make_tenant
from tests.support.samples.jwt_forgeries import forgeries
from tests.support.system.gateways import single_gateway
from tests.support.system.routes import APPLICATIONS, PROBES, ROUTES, Route
from tests.support.system.services import PASSWORD, Api, Services, bearer
from tests.support.tables import every_cell

# upload_service answers downloads directly; catalog_service answers icons only through the gateway.
SIGNED = {row.name for row in OPERATIONS if row.access is Access.SIGNED and row.service == UPLOAD}
CLOSED = [route for route in ROUTES if route.word not in SIGNED]
REFUSED = (401, "untrusted_caller")


@pytest.fixture(scope="module")
async def sessions(services: Services) -> AsyncIterator[Mapping[str, ClientSession]]:
    """Sessions that call the services directly."""
    async with AsyncExitStack() as stack:
        yield {
            service: await stack.enter_async_context(
                ClientSession(connector=UnixConnector(services.addresses[service].removeprefix("unix:")))
            )
            for service in APPLICATIONS
        }


def path_of(route: Route, tenant_id: str) -> str:
    return "/".join("x" if part.startswith("{") else part for part in route.path.split("/")).replace(
        "/x/", f"/{tenant_id}/", 1
    )


async def call(session: ClientSession, method: str, path: str, token: str | None) -> Answer:
    headers = {} if token is None else {INTERNAL_TOKEN: token}
    async with session.request(method, URL(f"http://localhost{path}", encoded=True), headers=headers) as response:
        return await read_answer(response)


def bad_tokens(route: Route, caller: Caller) -> Mapping[str, str | None]:
    """Tokens that a route refuses. `forgeries` and the tests of `internal_tokens` have more."""
    good = sign(KEY, caller, service=route.service, operation=route.word)
    claims = jwt.decode(good, KEY, algorithms=[ALGORITHM], audience=route.service)
    service = next(name for name in APPLICATIONS if name != route.service)
    word = next(other.word for other in ROUTES if other.service == route.service and other.word != route.word)
    session = {"aud": "session", "tenant": caller.tenant_id, "sub": "admin", "jti": "x"}
    return {
        "none": None,
        "forged": sign(f"not {KEY}", caller, service=route.service, operation=route.word),
        "expired": jwt.encode({**claims, "exp": int(time.time()) - 600}, KEY, algorithm=ALGORITHM),
        "for another service": sign(KEY, caller, service=service, operation=route.word),
        "for another operation": sign(KEY, caller, service=route.service, operation=word),
        "another tenant's": sign(KEY, make_caller(), service=route.service, operation=route.word),
        "a session's": jwt.encode({**session, "exp": claims["exp"], "iat": claims["iat"]}, KEY, algorithm=ALGORITHM),
    }


async def test_a_service_rejects_requests_without_its_token(sessions: Mapping[str, ClientSession]) -> None:
    caller = make_caller()
    with every_cell() as cell:
        for route in CLOSED:
            path = path_of(route, caller.tenant_id)
            for kind, token in bad_tokens(route, caller).items():
                with cell(route, kind):
                    answer = await call(sessions[route.service], route.method, path, token)
                    assert (answer.status, answer.body["code"]) == REFUSED
            with cell(route, "good"):
                good = sign(KEY, caller, service=route.service, operation=route.word)
                assert (await call(sessions[route.service], route.method, path, good)).status != 401


async def test_no_spelling_of_a_path_bypasses_the_token(sessions: Mapping[str, ClientSession]) -> None:
    tenant_id = make_tenant().tenant_id
    first = {route.service: route for route in reversed(CLOSED)}.values()
    with every_cell() as cell:
        for route, word in product(first, (*SIGNED, "livez", "readyz")):
            rest = path_of(route, tenant_id).removeprefix(f"/{tenant_id}/")
            for path in (
                f"/{tenant_id}%2F{word}/{rest}",
                f"/{tenant_id}%2f{word}%2fx/{rest}",
                f"/{tenant_id}/{word}/../{rest}",
                f"/%2F{word}/{rest}",
                f"/{word}/{rest}",
                f"/{word}%2F..%2F{tenant_id}/{rest}",
            ):
                with cell(route, path):
                    answer = await call(sessions[route.service], route.method, path, None)
                    assert answer.status in {401, 403, 404, 405}


@pytest.mark.parametrize("service", APPLICATIONS)
async def test_every_forged_token_gets_the_same_answer(service: str, sessions: Mapping[str, ClientSession]) -> None:
    route, caller = next(route for route in CLOSED if route.service == service), make_caller()
    bodies = set()
    for trick, forged in forgeries(sign(KEY, caller, service=service, operation=route.word), KEY):
        answer = await call(sessions[service], route.method, path_of(route, caller.tenant_id), forged)
        assert (answer.status, answer.body["code"]) == REFUSED, trick
        bodies.add(str({**answer.body, "request_id": ""}))
    assert len(bodies) == 1


@pytest.mark.parametrize("service", APPLICATIONS)
async def test_only_probes_need_no_token(service: str, sessions: Mapping[str, ClientSession]) -> None:
    for path in PROBES:
        assert (await call(sessions[service], "GET", path, None)).status == 200
    for path in ("/", "/x", "/x/nothing", "/metrics", "/livez/x", "/x/livez", "/livez/", "//livez"):
        answer = await call(sessions[service], "GET", path, None)
        assert (answer.status, answer.body["code"]) == REFUSED


async def test_a_download_checks_its_own_signature(sessions: Mapping[str, ClientSession]) -> None:
    (route,) = (route for route in ROUTES if route.word in SIGNED)
    for query in ("", "?expires=9999999999&signature=x", "?expires=x&signature=%C3%A9", "?signature=%00"):
        answer = await call(sessions[route.service], route.method, path_of(route, "acme") + query, None)
        assert (answer.status, answer.body["code"]) == (403, "forbidden")


def test_every_operation_of_the_table_is_a_route_of_its_service() -> None:
    table = {(row.service, row.method, f"/{{tenant_id}}/{row.path}") for row in OPERATIONS if row.service != "gateway"}
    assert table <= {(route.service, route.method, route.path) for route in ROUTES}


async def test_every_forged_session_gets_the_same_answer(each: Api) -> None:
    token = each.headers["Authorization"].removeprefix("Bearer ")
    bodies = set()
    for trick, forged in forgeries(token, KEY):
        answer = await each.anonymous().call("GET", "test", headers=bearer(forged or "x"))
        assert answer.status == 401, trick
        bodies.add(str({**answer.body, "request_id": ""}) + answer.headers["WWW-Authenticate"])
    assert len(bodies) == 1
    assert (await each.call("GET", "test")).status == 200


async def test_login_throttle_counts_all_endpoints_and_forged_addresses(
    tenant: Api, services: Services, redis_url: str
) -> None:
    async with single_gateway(services, redis_url, tenant) as other:
        endpoints = [(api.anonymous(), form) for api in (tenant, other) for form in ("login", "sign_in")]
        for number in range(NETWORK_FAILURE_LIMIT):
            api, form = endpoints[number % len(endpoints)]
            forged = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded"), f"for=198.51.100.{number}")
            answer = await api.call("POST", form, data={"username": f"user-{number}", "password": "x"}, headers=forged)
            assert answer.status == 401
        for api, form in endpoints:
            answer = await api.call("POST", form, data={"username": "admin", "password": PASSWORD})
            assert (answer.status, int(answer.headers["Retry-After"]) > 0) == (429, True)
    await services.failures.forget("address:127.0.0.1")
