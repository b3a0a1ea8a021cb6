"""Misleading addresses: each deployment answers only the paths of its operations."""

from urllib.parse import urlsplit

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.auth.roles import ADMINISTRATOR
from common.tenants import RESERVED, Tenant
from gateway.operations import OPERATIONS, Operation
from tests.support.api import Answer
from tests.support.factories import KEY
from tests.support.system.raw_http import send_raw
from tests.support.system.routes import ROUTES
from tests.support.system.seed import UNKNOWN, segments, title
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell

TABLE = {row.name for row in OPERATIONS}
INTERNAL = sorted({(route.word, route.service) for route in ROUTES if route.word not in TABLE})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")

# {t} is the path prefix of a tenant, such as /acme or /client/api.
CONFUSED = (
    "{t}/../{bare}/test",
    "{t}/./test",
    "/.{t}/test",
    "/x/..{t}/test",
    "{t}/%2e%2e/{bare}/test",
    "{t}/%2e/test",
    "{t}/%2E%2e/internal/find_tenant",
    "{t}/%252e%252e/test",
    "{t}/..%2ftest",
    "{t}/..%2Ftest",
    "{t}%2ftest",
    "{t}%2Ftest",
    "{t}/x%2f..%2ftest",
    "{t}/get_package_versions/..%2f..%2fget_users",
    "{t}/get_package_versions/a%2Fb",
    "{t}/get_package_versions/..",
    "{t}/get_package_versions/%2e%2e",
    "{t}/get_package_versions/.",
    "{t};x=1/test",
    "{t}/test;x=1",
    "{t}/;/test",
    "/{t}/test",
    "{t}//test",
    "{t}/test//",
    "{t}/test/",
    "{t}/test/.",
    "{t}/test/x",
    "{t}/",
    "{t}",
    "{t}\\test",
    "{t}/\\test",
    "{t}%5ctest",
    "{t}/..%5ctest",
    "{t}/get_package_versions/a%5Cb",
    "{t}/get_package_versions/a\\b",
    "{t}/test%00",
    "{t}/%00test",
    "{t}/get_package_versions/a%00b",
    "{t}/get_package_versions/a%0d%0aX-Internal-Token:x",
    "{t}/get_package_versions/%ff",
    "{t}/get_package_versions/%c0%af",
    "{t}/get_package_versions/%ed%a0%80",
    "{t}/get_package_versions/%",
    "{t}/get_package_versions/%zz",
    "{t}/%74est%20",
    "{t}/Test",
    "{t}/TEST",
    "{t}/tes",
    "{t}/tests",
    "{t}/internal/test",
    "/internal{t}/test",
    "/internal/test",
    "/internal/find_tenant",
    "{t}/livez",
    "{t}/readyz",
    "/livez/",
    "/livez{t}/test",
    "/readyz/../{bare}/test",
    "/nosuchtenant/test",
    "/-/test",
    "/%20/test",
    "/a.b/test",
    "/test",
    "/",
    "//",
    "/client/api/../test",
    "/Client/api/test",
    "/client/API/test",
    "/client/test",
    "/client//api/test",
    "/client/api",
    "{absolute}{t}/test",
    "http://elsewhere.example{t}/test",
)


def prefix_of(api: Api) -> str:
    """The path before an operation."""
    return urlsplit(api.base_url).path


async def send(api: Api, method: str, target: str, headers: dict[str, str] | None = None) -> Answer:
    url = urlsplit(api.base_url)
    return await send_raw(f"{url.scheme}://{url.netloc}", method, target, {**api.headers, **(headers or {})})


async def test_an_address_with_special_segments_is_rejected(each: Api) -> None:
    prefix, host = prefix_of(each), urlsplit(each.base_url).netloc
    assert (await send(each, "GET", f"{prefix}/test")).status == 200
    with every_cell() as cell:
        for address in CONFUSED:
            target = address.replace("{t}", prefix).replace("{bare}", prefix.strip("/"))
            target = target.replace("{absolute}", f"http://{host}")
            with cell(address):
                answer = await send(each, "GET", target)
                assert answer.status == 404
                # The gateway itself answers without calling a service.
                assert answer.body["code"] in {"operation_not_found", "tenant_not_found", "not_found"}
                assert (await send(each, "POST", target)).status in {404, 405}


async def test_a_malformed_request_line_is_rejected(each: Api) -> None:
    with every_cell() as cell:
        for target in ("test", "*", "?", "\\test", "/%", "/a b", "/\x01", "/\xff", "http://["):
            with cell(repr(target)):
                answer = await send(each, "GET", prefix_of(each) + target if target.startswith("/") else target)
                assert answer.status in {400, 404}


async def test_a_letter_may_be_escaped_only_once(each: Api) -> None:
    assert (await send(each, "GET", f"{prefix_of(each)}/%74est")).status == 200
    assert (await send(each, "GET", f"{prefix_of(each)}/%2574est")).status == 404


async def test_a_reserved_word_is_not_a_tenant(tenant: Api) -> None:
    words = sorted(RESERVED - {"client"})
    assert [word for word in words if (await send(tenant, "GET", f"/{word}/test")).status != 404] == []


async def test_an_unknown_tenant_has_no_operation(tenant: Api) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            with cell(title(row)):
                answer = await send(tenant, row.method, "/".join(["", "nobody", *segments(row, UNKNOWN)]))
                code = 404 if row.is_winget else "tenant_not_found"  # The winget protocol has numeric codes.
                assert (answer.status, answer.body["code"]) == (404, code)


async def test_each_deployment_has_only_its_own_form_of_paths(tenant: Api, single: Api, services: Services) -> None:
    assert (await send(tenant, "GET", "/client/api/test")).status == 404
    assert (await send(single, "GET", f"/{single.tenant_id}/test")).status == 404
    by_multi = await services.api(single.tenant_id).signed_in()
    assert (await send(by_multi, "GET", f"/{single.tenant_id}/test")).status == 200


def test_the_list_of_internal_operations_is_complete() -> None:
    known = {"find_tenant", "record_audit", "claim_installer", "identify_client", "hidden_packages"}
    assert known <= {word for word, _ in INTERNAL}


async def test_an_internal_operation_has_no_outside_address(each: Api) -> None:
    caller = Caller(Tenant(each.tenant_id)).as_administrator("admin", "x", ADMINISTRATOR)
    with every_cell() as cell:
        for word, service in INTERNAL:
            token = {INTERNAL_TOKEN: sign(KEY, caller, service=service, operation=word)}
            for method in METHODS:
                with cell(method, word):
                    answer = await send(each, method, f"{prefix_of(each)}/{word}", token)
                    assert answer.status == 404


def methods_of(row: Operation) -> set[str]:
    methods = {other.method for other in OPERATIONS if other.path == row.path}
    return methods | ({"HEAD"} if "GET" in methods else set())


async def test_a_wrong_method_gets_the_allowed_methods(each: Api) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            path = "/".join([prefix_of(each), *segments(row, UNKNOWN)])
            for method in sorted(set(METHODS) - methods_of(row)):
                with cell(method, row.path):
                    answer = await send(each, method, path)
                    assert (answer.status, answer.headers["Allow"]) == (405, ", ".join(sorted(methods_of(row))))


async def test_head_has_the_answer_of_get_without_a_body(each: Api) -> None:
    with every_cell() as cell:
        for row in (row for row in OPERATIONS if row.method == "GET"):
            path = segments(row, UNKNOWN)
            with cell(row.path):
                full, head = await each.call("GET", *path), await each.call("HEAD", *path)
                assert head.status == full.status
                assert head.headers.get("Content-Type") == full.headers.get("Content-Type")
                assert not head.body


ANY_TEXT = "winget/packageManifests"  # Its package id may contain slashes.


async def test_a_final_slash_or_capitals_change_the_address(each: Api) -> None:
    prefix = prefix_of(each)
    with every_cell() as cell:
        for row in OPERATIONS:
            path = "/".join([prefix, *segments(row, UNKNOWN)])
            capitals = path.replace(row.name, row.name.swapcase()), path.replace(prefix, prefix.upper())
            longer = (f"{path}/", f"{path}//", f"{path}%2f", f"{path}/x")
            for target in (*(() if row.name == ANY_TEXT else longer), *capitals):
                with cell(row.method, target):
                    assert (await send(each, row.method, target)).status == 404
