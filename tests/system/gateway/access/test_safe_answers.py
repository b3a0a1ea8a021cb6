"""Every kind of answer keeps browsers from guessing, embedding and keeping it, and tells nothing of our insides."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, UnixConnector, web
from yarl import URL

from common.caller import Deployment
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer, read_answer
from tests.support.whole.estate import UNKNOWN, Estate, segments, title
from tests.support.whole.raw import send_raw
from tests.support.whole.services import Api, Services
from tests.support.whole.standin import instead
from tests.system.gateway.dashboard.test_documentation import sign_in
from tests.system.gateway.test_problems import check_told, gateway

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
    told = {"same-origin"} if headers.get("content-type", "").startswith("text/html") else set()  # the sign-in page
    assert headers["referrer-policy"] in {"no-referrer", *told}
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] in CACHE_CONTROLS
    policy = dict.fromkeys(part.strip() for part in headers["content-security-policy"].split(";"))
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= policy.keys()
    assert "unsafe" not in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert not {name.casefold() for name in REVEALING} & headers.keys()


@pytest.mark.parametrize("row", OPERATIONS, ids=title)
async def test_every_operation_answers_safely_to_anyone(row: Operation, furnished: Estate) -> None:
    await_ending = row.method == "DELETE" or row.word in {"logout", "change_password"}
    parts = UNKNOWN if await_ending else furnished.parts
    for api in (furnished.api.anonymous(), furnished.api):
        for method in {row.method, "HEAD" if row.method == "GET" else row.method, "TRACE"}:
            answer = await api.call(method, *segments(row, parts), headers=ELSEWHERE)
            check_safe(answer)
            assert answer.status < 500


@pytest.mark.parametrize("row", OPERATIONS, ids=title)
async def test_no_other_site_is_let_in(row: Operation, furnished: Estate) -> None:
    answer = await furnished.api.call("OPTIONS", *segments(row, UNKNOWN), headers=PREFLIGHT)
    assert answer.status == 405
    check_safe(answer)


async def test_what_browsers_and_machines_load_is_safe(furnished: Estate) -> None:
    cookie = await sign_in(furnished.api)
    for path in (["docs"], ["openapi.json"], ["sign_in"], ["docs", "assets", "docs.js"], ["docs", "assets", "no.js"]):
        check_safe(await furnished.api.anonymous().call("GET", *path, headers=cookie))
    for headers in ({}, {"Range": "bytes=0-1"}, {"Range": "bytes=99999999-"}, {"If-None-Match": "*"}):
        async with furnished.api.session.get(URL(furnished.link, encoded=True), headers=headers) as response:
            check_safe(await read_answer(response))
    url = urlsplit(furnished.api.base_url)
    for address in (
        "/livez",
        "/readyz",
        "/",
        "/favicon.ico",
        "/robots.txt",
        "/.well-known/security.txt",
        "/nobody/test",
    ):
        check_safe(await send_raw(f"{url.scheme}://{url.netloc}", "GET", address))


@pytest.mark.parametrize("line", ["GET / HTTP/9.9", "\x16\x03\x01", "GET / HTTP/1.1\r\nX: \0"])
async def test_what_is_no_request_is_answered_safely(line: str, services: Services) -> None:
    check_safe(await send_raw(services.addresses[Deployment.MULTI], line, ""))


async def test_a_service_that_is_called_itself_answers_as_safely(services: Services) -> None:
    async with instead(_crash) as address:
        check_safe(await send_raw(address, "GET", "/"))


@pytest.mark.parametrize("wish", ["100-continue", "the-unexpected"])
async def test_whoever_wishes_to_be_asked_for_a_body_is_answered_as_others_are(wish: str, services: Services) -> None:
    connector = UnixConnector(services.addresses["auth_service"].removeprefix("unix:"))
    gate = services.addresses[Deployment.MULTI]
    answers = [await send_raw(gate, "GET", path, {"Expect": wish}) for path in ("/livez", "/readyz")]
    async with ClientSession(connector=connector) as session:
        for method, path in {"POST": "login", "GET": "get_users", "HEAD": "get_users"}.items():
            request = session.request(method, f"http://localhost/acme/{path}", headers={"Expect": wish})
            async with request as response:
                answers.append(await read_answer(response))
    for answer in answers:
        check_safe(answer)
        assert answer.headers["X-Request-Id"]
    assert [answer.status for answer in answers] == [200, 200, 401, 401, 401]


async def test_browsers_are_told_to_stay_where_the_public_address_is_encrypted(
    services: Services, redis_url: str, tenant: Api
) -> None:
    for public, told in {
        "https://packages.example.com": "max-age=31536000",
        "http://packages.example.com": None,
    }.items():
        async with gateway(services, redis_url, public_url=public) as address:
            answer = await replace(tenant, base_url=f"{address}/{tenant.tenant_id}").call("GET", "test")
        assert answer.headers.get("Strict-Transport-Security") == told


async def _crash(_: web.Request) -> web.StreamResponse:
    raise OSError("[Errno 2] /srv/pkgrepo/store.py: pymongo.errors.AutoReconnect")


async def _tell(_: web.Request) -> web.StreamResponse:
    text = 'Traceback (most recent call last): File "/usr/lib/store.py", pymongo.errors.AutoReconnect'
    return web.Response(status=500, text=text, headers={"X-Powered-By": "aiohttp", "Server": "aiohttp"})


async def _tell_in_json(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "redis.exceptions.ConnectionError"}, status=502)


async def _hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _talk_nonsense(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"mongod: nonsense\r\n\r\n")
    request.transport.close()
    return web.Response()


BROKEN = (_crash, _tell, _tell_in_json, _hang_up, _talk_nonsense)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.access is not Access.PAGE], ids=title)
async def test_a_service_that_breaks_tells_callers_nothing(
    broken: object, row: Operation, services: Services, redis_url: str, tenant: Api
) -> None:
    async with instead(broken) as address:  # type: ignore[arg-type]
        broken_url = {f"{row.service}_url": address} if row.service != "gateway" else {"auth_service_url": address}
        async with gateway(services, redis_url, **broken_url) as before:
            api = replace(tenant, base_url=f"{before}/{tenant.tenant_id}")
            answer = await api.call(row.method, *segments(row, UNKNOWN), data={"package_id": "a"})
    # What a service of ours says of its own crash is passed on; anything else is no answer.
    check_told(row, answer, 500, "internal_error" if broken is _crash else "dependency_unavailable")
    check_safe(answer)
