"""Every response has the security headers and reveals no internals."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, UnixConnector, web
from yarl import URL

from common.auth.internal_tokens import Deployment
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer, read_answer
from tests.support.system.fields import select_fields
from tests.support.system.gateways import SERVICES, at_gateway, run_gateway
from tests.support.system.pages import sign_in
from tests.support.system.problems import check_error
from tests.support.system.raw_http import send_raw
from tests.support.system.seed import UNKNOWN, SeedData, segments, title
from tests.support.system.services import Api, Services
from tests.support.system.stub_service import Handler, serve_handler
from tests.support.tables import every_cell

ELSEWHERE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
PREFLIGHT = {
    **ELSEWHERE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
    "Access-Control-Request-Private-Network": "true",
}
CACHE_CONTROLS = {"no-store", "private", "private, no-cache", "private, max-age=300", "public, max-age=3600"}
REVEALING = ("X-Powered-By", "Via", "X-AspNet-Version", "X-Runtime", "X-Internal-Audit", "X-Internal-Token")


def check_safe(answer: Answer) -> None:
    headers: Mapping[str, str] = {name.casefold(): value for name, value in answer.headers.items()}
    assert headers["server"] == "pkgrepo"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    is_page = headers.get("content-type", "").startswith("text/html")
    assert headers["referrer-policy"] in {"no-referrer", *({"same-origin"} if is_page else ())}  # the sign-in page
    if is_page:
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert {"camera=()", "geolocation=()", "microphone=()"} <= set(headers["permissions-policy"].split(", "))
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] in CACHE_CONTROLS
    policy = dict.fromkeys(part.strip() for part in headers["content-security-policy"].split(";"))
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= policy.keys()
    assert "unsafe" not in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert not {name.casefold() for name in REVEALING} & headers.keys()


async def test_every_operation_answers_any_caller_safely(furnished: SeedData) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            ends_something = row.method == "DELETE" or row.name in {"logout", "change_password"}
            path = segments(row, UNKNOWN if ends_something else furnished.parts)
            for api in (furnished.api.anonymous(), furnished.api):
                for method in {row.method, "HEAD" if row.method == "GET" else row.method, "TRACE"}:
                    with cell(method, row.path, "session" if api.headers else "anonymous"):
                        answer = await api.call(method, *path, headers=ELSEWHERE)
                        check_safe(answer)
                        assert answer.status < 500


async def test_cross_origin_requests_get_no_permission(furnished: SeedData) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            with cell(title(row)):
                answer = await furnished.api.call("OPTIONS", *segments(row, UNKNOWN), headers=PREFLIGHT)
                assert answer.status == 405
                check_safe(answer)


async def test_pages_and_machine_endpoints_answer_safely(furnished: SeedData) -> None:
    cookie = await sign_in(furnished.api)
    assets = (["docs", "assets", "docs.js"], ["docs", "assets", "no.js"])
    for page in (["docs"], ["openapi.json"], ["sign_in"], ["dashboard"], ["dashboard", "packages"], *assets):
        check_safe(await furnished.api.anonymous().call("GET", *page, headers=cookie))
    for headers in ({}, {"Range": "bytes=0-1"}, {"Range": "bytes=99999999-"}, {"If-None-Match": "*"}):
        async with furnished.api.session.get(URL(furnished.link, encoded=True), headers=headers) as response:
            check_safe(await read_answer(response))
    url = urlsplit(furnished.api.base_url)
    paths = ("/livez", "/readyz", "/", "/favicon.ico", "/robots.txt", "/.well-known/security.txt", "/nobody/test")
    for path in paths:
        check_safe(await send_raw(f"{url.scheme}://{url.netloc}", "GET", path))


async def test_invalid_requests_are_answered_safely(services: Services) -> None:
    for line in ("GET / HTTP/9.9", "\x16\x03\x01", "GET / HTTP/1.1\r\nX: \0"):
        check_safe(await send_raw(services.addresses[Deployment.MULTI], line, ""))


async def test_a_directly_called_service_answers_safely(services: Services) -> None:
    async with serve_handler(_crash) as address:
        check_safe(await send_raw(address, "GET", "/"))


@pytest.mark.parametrize("expect", ["100-continue", "the-unexpected"])
async def test_a_request_with_expect_is_answered_like_any_other(expect: str, services: Services) -> None:
    connector = UnixConnector(services.addresses["auth_service"].removeprefix("unix:"))
    gate = services.addresses[Deployment.MULTI]
    answers = [await send_raw(gate, "GET", path, {"Expect": expect}) for path in ("/livez", "/readyz")]
    async with ClientSession(connector=connector) as session:
        for method, path in {"POST": "login", "GET": "get_users", "HEAD": "get_users"}.items():
            request = session.request(method, f"http://localhost/acme/{path}", headers={"Expect": expect})
            async with request as response:
                answers.append(await read_answer(response))
    for answer in answers:
        check_safe(answer)
        assert answer.headers["X-Request-Id"]
    assert [answer.status for answer in answers] == [200, 200, 401, 401, 401]


async def test_hsts_is_sent_if_the_public_url_is_https(services: Services, redis_url: str, tenant: Api) -> None:
    for scheme, expected in {"https": "max-age=31536000", "http": None}.items():
        async with run_gateway(services, redis_url, public_url=f"{scheme}://packages.example.com") as address:
            answer = await at_gateway(tenant, address).call("GET", "test")
        assert answer.headers.get("Strict-Transport-Security") == expected


async def _crash(_: web.Request) -> web.StreamResponse:
    raise OSError("[Errno 2] /srv/pkgrepo/store.py: pymongo.errors.AutoReconnect")


async def _reply(_: web.Request) -> web.StreamResponse:
    text = 'Traceback (most recent call last): File "/usr/lib/store.py", pymongo.errors.AutoReconnect'
    return web.Response(status=500, text=text, headers={"X-Powered-By": "aiohttp", "Server": "aiohttp"})


async def _reply_with_json(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "redis.exceptions.ConnectionError"}, status=502)


async def _hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _send_garbage(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"mongod: nonsense\r\n\r\n")
    request.transport.close()
    return web.Response()


BROKEN = (_crash, _reply, _reply_with_json, _hang_up, _send_garbage)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
async def test_a_failing_service_reveals_nothing(
    broken: Handler, services: Services, redis_url: str, tenant: Api
) -> None:
    # Problems of a service are passed on; other answers are not.
    code = "internal_error" if broken is _crash else "dependency_unavailable"
    with every_cell() as cell:
        async with serve_handler(broken) as broken_url:
            for service in SERVICES:
                async with run_gateway(services, redis_url, **{f"{service}_url": broken_url}) as address:
                    api = at_gateway(tenant, address)
                    for row in operations_of(service):
                        with cell(title(row)):
                            form = select_fields(row, {"package_id": "a"})
                            answer = await api.call(row.method, *segments(row, UNKNOWN), data=form)
                            check_error(row, answer, 500, code)
                            check_safe(answer)


def operations_of(service: str) -> list[Operation]:
    """The operations that call a service. Operations of the gateway call auth_service for the tenant."""
    rows = [row for row in OPERATIONS if row.access is not Access.PAGE]
    return [row for row in rows if service == row.service.replace("gateway", "auth_service")]
