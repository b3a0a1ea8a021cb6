"""Addresses: each deployment answers only the paths of its operations, and those of the alias `/client/api/`."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from yarl import URL

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, Deployment, sign
from common.auth.roles import ADMINISTRATOR
from common.tenants import RESERVED, Tenant
from gateway.operations import OPERATIONS, Operation
from tests.support.factories import KEY, make_tenant
from tests.support.metrics import fetch_metrics
from tests.support.system.publishing import add_package, download, package_id, publish, version_of
from tests.support.system.routes import ROUTES
from tests.support.system.seed import UNKNOWN, segments, title
from tests.support.system.services import Api, Services
from tests.support.tables import each, every_cell
from tests.support.winget.client import WingetClient

TABLE = {row.name for row in OPERATIONS}
INTERNAL = sorted({(route.word, route.service) for route in ROUTES if route.word not in TABLE})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")

# {t} is the path prefix of a tenant, such as /acme or /client/api.
CONFUSED = r"""
    {t}/../{bare}/test {t}/./test /.{t}/test /x/..{t}/test {t}/%2e%2e/{bare}/test {t}/%2e/test
    {t}/%2E%2e/internal/find_tenant {t}/%252e%252e/test {t}/..%2ftest {t}/..%2Ftest {t}%2ftest {t}%2Ftest
    {t}/x%2f..%2ftest {t}/get_package_versions/..%2f..%2fget_users {t}/get_package_versions/a%2Fb
    {t}/get_package_versions/.. {t}/get_package_versions/%2e%2e {t}/get_package_versions/. {t};x=1/test
    {t}/test;x=1 {t}/;/test /{t}/test {t}//test {t}/test// {t}/test/ {t}/test/. {t}/test/x {t}/ {t} {t}\test
    {t}/\test {t}%5ctest {t}/..%5ctest {t}/get_package_versions/a%5Cb {t}/get_package_versions/a\b {t}/test%00
    {t}/%00test {t}/get_package_versions/a%00b {t}/get_package_versions/a%0d%0aX-Internal-Token:x
    {t}/get_package_versions/%ff {t}/get_package_versions/%c0%af {t}/get_package_versions/%ed%a0%80
    {t}/get_package_versions/% {t}/get_package_versions/%zz {t}/%74est%20 {t}/Test {t}/TEST {t}/tes {t}/tests
    {t}/internal/test /internal{t}/test /internal/test /internal/find_tenant {t}/livez {t}/readyz /livez/
    /livez{t}/test /readyz/../{bare}/test /nosuchtenant/test /-/test /%20/test /a.b/test /test / //
    /client/api/../test /Client/api/test /client/API/test /client/test /client//api/test /client/api
    {absolute}{t}/test http://elsewhere.example{t}/test
"""


async def test_an_address_with_special_segments_is_rejected(each: Api) -> None:
    prefix, host = each.path, URL(each.base_url).authority
    assert (await each.call_raw("GET", f"{prefix}/test")).status == 200
    with every_cell() as cell:
        for address in CONFUSED.split():
            target = address.replace("{t}", prefix).replace("{bare}", prefix.strip("/"))
            target = target.replace("{absolute}", f"http://{host}")
            with cell(address):
                answer = await each.call_raw("GET", target)
                assert answer.status == 404
                # The gateway itself answers without calling a service.
                assert answer.body["code"] in {"operation_not_found", "tenant_not_found", "not_found"}
                assert (await each.call_raw("POST", target)).status in {404, 405}


async def test_a_malformed_request_line_is_rejected(each: Api) -> None:
    with every_cell() as cell:
        for target in ("test", "*", "?", "\\test", "/%", "/a b", "/\x01", "/\xff", "http://["):
            with cell(repr(target)):
                answer = await each.call_raw("GET", each.path + target if target.startswith("/") else target)
                assert answer.status in {400, 404}


async def test_a_letter_may_be_escaped_only_once(each: Api) -> None:
    assert (await each.call_raw("GET", f"{each.path}/%74est")).status == 200
    assert (await each.call_raw("GET", f"{each.path}/%2574est")).status == 404


async def test_a_reserved_word_is_not_a_tenant(tenant: Api) -> None:
    words = sorted(RESERVED - {"client"})
    assert [word for word in words if (await tenant.call_raw("GET", f"/{word}/test")).status != 404] == []


async def test_an_unknown_tenant_has_no_operation(tenant: Api) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            with cell(title(row)):
                answer = await tenant.call_raw(row.method, "/".join(["", "nobody", *segments(row, UNKNOWN)]))
                code = 404 if row.is_winget else "tenant_not_found"  # The winget protocol has numeric codes.
                assert (answer.status, answer.body["code"]) == (404, code)


async def test_each_deployment_has_only_its_own_form_of_paths(tenant: Api, single: Api, services: Services) -> None:
    assert (await tenant.call_raw("GET", "/client/api/test")).status == 404
    assert (await single.call_raw("GET", f"/{single.tenant_id}/test")).status == 404
    by_multi = await services.api(single.tenant_id).signed_in()
    assert (await by_multi.call_raw("GET", f"/{single.tenant_id}/test")).status == 200


def test_the_list_of_internal_operations_is_complete() -> None:
    known = {"find_tenant", "record_audit", "claim_installer", "identify_client", "hidden_packages"}
    assert known <= {word for word, _ in INTERNAL}


async def test_an_internal_operation_has_no_outside_address(each: Api) -> None:
    caller = Caller(Tenant(each.tenant_id)).as_administrator("admin", "x", ADMINISTRATOR)
    with every_cell() as cell:
        for word, service in INTERNAL:
            token = {INTERNAL_TOKEN: sign(KEY, caller, service=service, operation=word)}
            for method in ("GET", "POST"):
                with cell(method, word):
                    answer = await each.call_raw(method, f"{each.path}/{word}", token)
                    assert answer.status == 404


def methods_of(row: Operation) -> set[str]:
    methods = {other.method for other in OPERATIONS if other.path == row.path}
    return methods | ({"HEAD"} if "GET" in methods else set())


async def test_a_wrong_method_gets_the_allowed_methods(tenant: Api) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            path = "/".join([tenant.path, *segments(row, UNKNOWN)])
            for method in sorted(set(METHODS) - methods_of(row)):
                with cell(method, row.path):
                    answer = await tenant.call_raw(method, path)
                    assert (answer.status, answer.headers["Allow"]) == (405, ", ".join(sorted(methods_of(row))))


async def test_head_has_the_answer_of_get_without_a_body(tenant: Api) -> None:
    with every_cell() as cell:
        for row in (row for row in OPERATIONS if row.method == "GET"):
            path = segments(row, UNKNOWN)
            with cell(row.path):
                full, head = await tenant.call("GET", *path), await tenant.call("HEAD", *path)
                assert head.status == full.status
                assert head.headers.get("Content-Type") == full.headers.get("Content-Type")
                assert not head.body


ANY_TEXT = "winget/packageManifests"  # Its package id may contain slashes.


async def test_a_final_slash_or_capitals_change_the_address(tenant: Api) -> None:
    prefix = tenant.path
    with every_cell() as cell:
        for row in OPERATIONS:
            path = "/".join([prefix, *segments(row, UNKNOWN)])
            capitals = path.replace(row.name, row.name.swapcase()), path.replace(prefix, prefix.upper())
            longer = (f"{path}/", f"{path}//", f"{path}%2f", f"{path}/x")
            for target in (*(() if row.name == ANY_TEXT else longer), *capitals):
                with cell(row.method, target):
                    assert (await tenant.call_raw(row.method, target)).status == 404


@pytest.fixture
def alias(tenant: Api) -> Api:
    return tenant.by_alias()


async def test_the_desktop_client_is_answered_at_the_alias_with_a_valid_token_only(enforcing: Api) -> None:
    added = (await enforcing.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex}.example"})).body
    client = enforcing.by_alias().anonymous()
    form = {"Auth-Token": added["auth_token"], "Client": "1"}
    assert (await client.call("POST", "get_packages", data=form)).status == 200
    assert (await client.call("POST", "client_version", data=form)).body == {"Version": "0.0.0.0"}
    for wrong in ({}, {"Auth-Token": str(uuid4()), "Client": "1"}):
        answer = await client.call("POST", "get_packages", data=wrong)
        assert (answer.status, answer.body["code"]) == (401, "not_authenticated")


async def _nothing() -> AsyncIterator[bytes]:
    """A body of unknown length that is empty."""
    return
    yield b""


@each("operation", ["client_version", "get_packages"])
async def test_an_empty_json_object_is_a_form_without_fields(tenant: Api, operation: str) -> None:
    client, headers = tenant.by_alias().anonymous(), {"Content-Type": "application/json; charset=utf-8"}
    for body in (b"{}", b" { }\r\n", b"", _nothing()):
        assert (await client.call("POST", operation, data=body, headers=headers)).status == 200
    for body in (b'{"auth_token": ""}', b"[]", b"nonsense"):
        answer = await client.call("POST", operation, data=body, headers=headers)
        assert (answer.status, answer.body["code"]) == (400, "invalid_request")


async def test_a_version_is_published_and_downloaded_at_both_addresses(tenant: Api, alias: Api) -> None:
    name = package_id()
    await add_package(alias, name)
    published = await publish(alias, name)
    (version,) = (await alias.call("GET", "get_package_versions", name)).body
    assert await download(alias, version["INSTALLER_URL"]) == published.content
    link = URL((await version_of(tenant, published))["INSTALLER_URL"])
    answer = await alias.anonymous().call("GET", *link.parts[2:], params=link.query)
    assert (answer.status, answer.body) == (200, published.content)


async def test_winget_searches_shows_and_installs_at_the_alias(alias: Api) -> None:
    winget, name = WingetClient(alias.session, f"{alias.base_url}/winget"), package_id()
    await add_package(alias, name)
    published = await publish(alias, name)
    assert (await winget.add())["SourceIdentifier"] == f"pkgrepo-{alias.tenant_id}"
    assert [hit.package_id for hit in await winget.search(name)] == [name]
    assert await winget.install(name) == published.content


@pytest.mark.parametrize("page", ["docs", "openapi.json", "docs/assets/docs.js", "sign_in", "dashboard/packages/A%20B"])
async def test_a_page_at_the_alias_redirects_to_the_short_address(alias: Api, page: str) -> None:
    answer = await alias.call_raw("GET", f"{alias.path}/{page}?next=/a%20b&x=//y")
    assert (answer.status, answer.headers["Location"]) == (307, f"/{alias.tenant_id}/{page}?next=/a%20b&x=//y")


async def test_a_page_of_an_unknown_tenant_does_not_redirect(services: Services) -> None:
    answer = await services.api("nobody").by_alias().call("GET", "docs")
    assert (answer.status, answer.body["code"]) == (404, "tenant_not_found")


async def test_the_alias_checks_the_networks_of_the_tenant(services: Services) -> None:
    tenant = make_tenant(allowed_networks=("192.0.2.0/24",))
    await services.operator.tenants.create(tenant)
    for operation in ("test", "docs"):
        answer = await services.api(tenant.tenant_id).by_alias().call("GET", operation)
        assert (answer.status, answer.body["code"]) == (403, "network_not_allowed")


async def test_audit_log_and_metrics_name_the_same_operation_for_the_alias(services: Services, alias: Api) -> None:
    async def count() -> float:
        figures = await fetch_metrics(services.session, services.management[Deployment.MULTI])
        route = {"method": "DELETE", "route": "/{tenant_id}/delete_package/{package_id}", "status": "404"}
        return figures.value("pkgrepo_requests_total", service="gateway", **route)

    await alias.call("DELETE", "delete_package", "No.Such")
    before = await count()
    await alias.call("DELETE", "delete_package", "No.Such")
    assert await count() == before + 1
    entry = (await alias.call("GET", "get_audit_log")).body[0]
    assert (entry["operation"], entry["target"]) == ("delete_package", {"package_id": "No.Such"})
