"""Addresses that are not what they seem: one door, both deployments alike."""

from urllib.parse import urlsplit

import pytest

from common.caller import INTERNAL_TOKEN, Caller, sign
from common.tenants import RESERVED, Tenant
from gateway.operations import OPERATIONS, Operation
from tests.support.api import Answer
from tests.support.factories import KEY
from tests.support.whole.estate import UNKNOWN, segments, title
from tests.support.whole.raw import send_raw
from tests.support.whole.routes import ROUTES
from tests.support.whole.services import Api, Services

TABLE = {row.word for row in OPERATIONS}
INTERNAL = sorted({route.word for route in ROUTES} - TABLE)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")

# {t} is the way to a tenant's operations, such as /acme or /client/api.
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


def way(api: Api) -> tuple[str, str]:
    """The gateway's address, and the path before an operation."""
    url = urlsplit(api.base_url)
    return f"{url.scheme}://{url.netloc}", url.path


async def ask(api: Api, method: str, target: str) -> Answer:
    address, _ = way(api)
    return await send_raw(address, method, target, api.headers)


@pytest.mark.parametrize("address", CONFUSED)
async def test_an_address_that_is_not_plain_leads_nowhere(address: str, each: Api) -> None:
    own, prefix = way(each)
    assert (await ask(each, "GET", f"{prefix}/test")).status == 200
    target = address.replace("{t}", prefix).replace("{bare}", prefix.strip("/")).replace("{absolute}", own)
    answer = await ask(each, "GET", target)
    assert answer.status == 404
    # The gateway itself says so; no service was asked.
    assert answer.body["code"] in {"operation_not_found", "tenant_not_found", "not_found"}
    assert (await ask(each, "POST", target)).status in {404, 405}


@pytest.mark.parametrize("target", ["test", "*", "?", "\\test", "/%", "/a b", "/\x01", "/\xff", "http://["])
async def test_a_request_line_that_is_none_is_refused(target: str, each: Api) -> None:
    _, prefix = way(each)
    answer = await ask(each, "GET", prefix + target if target.startswith("/") else target)
    assert answer.status in {400, 404}


async def test_a_letter_may_be_escaped_but_only_once(each: Api) -> None:
    _, prefix = way(each)
    assert (await ask(each, "GET", f"{prefix}/%74est")).status == 200
    assert (await ask(each, "GET", f"{prefix}/%2574est")).status == 404


@pytest.mark.parametrize("tenant_id", sorted(RESERVED - {"client"}))
async def test_a_reserved_word_is_no_tenant(tenant_id: str, tenant: Api) -> None:
    answer = await ask(tenant, "GET", f"/{tenant_id}/test")
    assert answer.status == 404


async def test_an_unknown_tenant_has_no_operation(tenant: Api) -> None:
    for row in OPERATIONS:
        answer = await ask(tenant, row.method, "/".join(["", "nobody", *segments(row, UNKNOWN)]))
        code = 404 if row.of_winget else "tenant_not_found"  # That protocol has numbers.
        assert (answer.status, answer.body["code"]) == (404, code)


async def test_each_deployment_knows_its_own_form_of_paths_only(tenant: Api, single: Api, services: Services) -> None:
    assert (await ask(tenant, "GET", "/client/api/test")).status == 404
    assert (await ask(single, "GET", f"/{single.tenant_id}/test")).status == 404
    by_multi = await services.api(single.tenant_id).signed_in()
    assert (await ask(by_multi, "GET", f"/{single.tenant_id}/test")).status == 200


def test_there_are_internal_operations_to_be_tried() -> None:
    assert {"find_tenant", "record_audit", "claim_installer", "identify_client", "hidden_packages"} <= set(INTERNAL)


@pytest.mark.parametrize("word", INTERNAL)
async def test_what_services_ask_each_other_has_no_entry_from_outside(word: str, each: Api) -> None:
    _, prefix = way(each)
    caller = Caller(Tenant(each.tenant_id)).as_administrator("admin", "x")
    services = {route.service for route in ROUTES if route.word == word}
    for method in METHODS:
        for service in services:
            headers = {**each.headers, INTERNAL_TOKEN: sign(KEY, caller, service=service, operation=word)}
            answer = await send_raw(way(each)[0], method, f"{prefix}/{word}", headers)
            assert answer.status == 404


def methods_of(row: Operation) -> set[str]:
    return {other.method for other in OPERATIONS if other.path == row.path}


@pytest.mark.parametrize("row", OPERATIONS, ids=title)
async def test_an_operation_names_its_methods_to_another(row: Operation, each: Api) -> None:
    _, prefix = way(each)
    own = methods_of(row) | ({"HEAD"} if "GET" in methods_of(row) else set())
    for method in METHODS:
        if method not in own:
            answer = await ask(each, method, "/".join([prefix, *segments(row, UNKNOWN)]))
            assert (answer.status, answer.headers["Allow"]) == (405, ", ".join(sorted(own)))


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.method == "GET"], ids=title)
async def test_head_answers_as_get_does_without_a_body(row: Operation, each: Api) -> None:
    path = segments(row, UNKNOWN)
    full, head = await each.call("GET", *path), await each.call("HEAD", *path)
    assert head.status == full.status
    assert head.headers.get("Content-Type") == full.headers.get("Content-Type")
    assert not head.body


TAKES_ANY_TEXT = "winget/packageManifests"  # slashes included, as a package id that there is not


@pytest.mark.parametrize("row", OPERATIONS, ids=title)
async def test_a_slash_at_the_end_or_capitals_are_another_address(row: Operation, each: Api) -> None:
    prefix = way(each)[1]
    path = "/".join([prefix, *segments(row, UNKNOWN)])
    capitals = path.replace(row.word, row.word.swapcase()), path.replace(prefix, prefix.upper())
    longer = (f"{path}/", f"{path}//", f"{path}%2f", f"{path}/x")
    for target in (*(() if row.word == TAKES_ANY_TEXT else longer), *capitals):
        assert (await ask(each, row.method, target)).status == 404
