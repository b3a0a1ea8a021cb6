"""The first pages: redirects to the dashboard, and the overview."""

import pytest

from tests.support.api import Answer
from tests.support.system.gateways import run_gateway
from tests.support.system.pages import sign_in
from tests.support.system.raw_http import send_raw
from tests.support.system.services import Api, Services

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PROGRAMS: tuple[dict[str, str], ...] = (
    {},
    {"Accept": "*/*"},
    {"Accept": "application/json"},
    {"Accept": "text/html, */*"},
)
NO_OPERATION = {"title": "Not Found", "detail": "There is no such operation.", "code": "operation_not_found"}


def assert_no_operation(answer: Answer) -> None:
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert {name: answer.body[name] for name in NO_OPERATION} == NO_OPERATION
    assert set(answer.body) == {*NO_OPERATION, "type", "status", "request_id"}


async def test_a_browser_at_the_path_of_a_tenant_gets_the_dashboard(either: Api) -> None:
    path = either.path
    for address in (path, f"{path}/", f"{path}?next=//evil.example"):
        for method in ("GET", "HEAD"):
            answer = await either.anonymous().call_raw(method, address, BROWSER)
            assert (answer.status, answer.headers["Location"]) == (303, f"{path}/dashboard"), address


async def test_the_single_tenant_deployment_has_one_dashboard(single: Api) -> None:
    answer = await single.anonymous().call_raw("GET", "/", BROWSER)
    assert (answer.status, answer.headers["Location"]) == (303, "/client/api/dashboard")


async def test_a_session_tells_the_tenant_of_the_first_page(tenant: Api) -> None:
    answer = await tenant.anonymous().call_raw("GET", "/", BROWSER | await sign_in(tenant))
    assert (answer.status, answer.headers["Location"]) == (303, f"/{tenant.tenant_id}/dashboard")


async def test_the_default_tenant_has_the_first_page(services: Services, redis_url: str, tenant: Api) -> None:
    async with run_gateway(services, redis_url, default_tenant=tenant.tenant_id) as address:
        answer = await send_raw(address, "GET", "/", BROWSER)
        assert (answer.status, answer.headers["Location"]) == (303, f"/{tenant.tenant_id}/dashboard")
        assert_no_operation(await send_raw(address, "GET", "/", {}))


async def test_a_program_gets_a_problem_instead_of_a_page(either: Api) -> None:
    path = either.path
    for address in ("/", path, f"{path}/"):
        for headers in PROGRAMS:
            assert_no_operation(await either.anonymous().call_raw("GET", address, headers))
        assert_no_operation(await either.anonymous().call_raw("POST", address, BROWSER))


@pytest.mark.parametrize("path", ["/no-such-tenant/dashboard", "/no-such-tenant/sign_in", "/no/such/page"])
async def test_only_a_browser_at_an_unknown_address_gets_a_page(tenant: Api, path: str) -> None:
    answer = await tenant.anonymous().call_raw("GET", path, BROWSER)
    assert (answer.status, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert b"<h1>Page not found</h1>" in answer.body
    for headers in PROGRAMS:
        answer = await tenant.anonymous().call_raw("GET", path, headers)
        assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")


async def test_caches_do_not_mix_pages_and_problems(either: Api) -> None:
    path = either.path
    for headers in (BROWSER, *PROGRAMS):
        answer = await either.anonymous().call_raw("GET", path, headers)
        assert answer.headers["Vary"] == "Accept, Cookie"
        assert answer.status != 303 or answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "/%2fevil.example", "/evil.example", "/.", "/..", "/client", "/a/b"]
)
async def test_no_path_redirects_a_browser_to_another_site(either: Api, path: str) -> None:
    cookies = {"Cookie": "session-//evil.example=x; session-=x; session-Client=x"}
    for address in (path, "/") if "client/api" not in either.base_url else (path,):
        answer = await either.anonymous().call_raw("GET", address, BROWSER | cookies)
        assert (answer.status, "Location" in answer.headers) == (404, False), address
