"""Every response has the security headers and reveals no internals."""

from itertools import cycle

from aiohttp import web
from yarl import URL

from common.auth.roles import FOR_TOKENS_ONLY
from gateway.operations import OPERATIONS, Access
from tests.support.api import read_answer
from tests.support.system.fields import select_fields
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.pages import sign_in
from tests.support.system.problems import check_error
from tests.support.system.publishing import add_package, publish, version_of
from tests.support.system.raw_http import send_raw
from tests.support.system.safe_headers import check_safe
from tests.support.system.seed import UNKNOWN, add_enroller, segments, title
from tests.support.system.services import Api, Services
from tests.support.system.stub_service import serve_handler
from tests.support.tables import every_cell

OTHER_SERVICES = ("catalog_service", "upload_service", "client_registry")
PREFLIGHT = {
    "Origin": "https://evil.example",
    "Sec-Fetch-Site": "cross-site",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
    "Access-Control-Request-Private-Network": "true",
}


async def test_every_refusal_has_the_security_headers(either: Api) -> None:
    """`test_walk` has the successes."""
    with every_cell() as cell:
        for row in OPERATIONS:
            for method in {row.method, "HEAD" if row.method == "GET" else row.method, "TRACE", "OPTIONS"}:
                with cell(method, row.path):
                    answer = await either.anonymous().call(method, *segments(row, UNKNOWN), headers=PREFLIGHT)
                    check_safe(answer)
                    assert answer.status < 500
                    assert (answer.status == 405) == (method in {"TRACE", "OPTIONS"})


async def test_pages_files_and_probes_have_the_security_headers(tenant: Api) -> None:
    cookie = await sign_in(tenant)
    assets = (["docs", "assets", "docs.js"], ["docs", "assets", "no.js"])
    for page in (["docs"], ["openapi.json"], ["sign_in"], ["dashboard"], ["dashboard", "packages"], *assets):
        check_safe(await tenant.anonymous().call("GET", *page, headers=cookie))
    await add_package(tenant, "Acme.App")
    link = URL((await version_of(tenant, await publish(tenant, "Acme.App")))["INSTALLER_URL"], encoded=True)
    for headers in ({}, {"Range": "bytes=0-1"}, {"Range": "bytes=99999999-"}, {"If-None-Match": "*"}):
        async with tenant.session.get(link, headers=headers) as response:
            check_safe(await read_answer(response))
    paths = ("/livez", "/readyz", "/", "/favicon.ico", "/robots.txt", "/.well-known/security.txt", "/nobody/test")
    for path in paths:
        check_safe(await send_raw(str(link.origin()), "GET", path))


async def test_a_directly_called_service_answers_safely(services: Services) -> None:
    async with serve_handler(_crash) as address:
        check_safe(await send_raw(address, "GET", "/"))


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


async def test_a_failing_service_reveals_nothing(services: Services, redis_url: str, tenant: Api) -> None:
    kinds = cycle(BROKEN)
    broken = next(kinds)

    async def fail(request: web.Request) -> web.StreamResponse:
        return await broken(request)

    enroller = await add_enroller(tenant)
    rows = [row for row in OPERATIONS if row.access is not Access.PAGE]
    async with (
        serve_handler(fail) as url,
        run_gateway(services, redis_url, auth_service_url=url) as first,
        run_gateway(services, redis_url, **{f"{name}_url": url for name in OTHER_SERVICES}) as second,
    ):
        with every_cell() as cell:
            for row, broken in zip(rows, kinds, strict=False):
                with cell(title(row), broken.__name__):
                    caller = enroller if row.permission in FOR_TOKENS_ONLY else tenant
                    api = at_gateway(caller, second if row.service in OTHER_SERVICES else first)
                    form = select_fields(row, {"package_id": "a"})
                    answer = await api.call(row.method, *segments(row, UNKNOWN), data=form)
                    # Problems of a service are passed on; other answers are not.
                    code = "internal_error" if broken is _crash else "dependency_unavailable"
                    check_error(row, answer, 500, code)
                    check_safe(answer)
                    assert broken is _crash or int(answer.headers["Retry-After"]) > 0
