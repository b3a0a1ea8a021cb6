"""Headers of callers that only proxies and services may send."""

from collections.abc import Iterator
from typing import Any

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, sign
from common.auth.roles import ADMINISTRATOR
from common.http.middleware import AUDIT_HEADER
from common.redis import TENANT_VERSION_HEADER
from common.tenants import Tenant
from gateway.operations import OPERATIONS
from tests.support.factories import KEY, make_tenant
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.seed import UNKNOWN, segments
from tests.support.system.services import Api, Services


def forged() -> Iterator[tuple[str, str]]:
    for name in ("X-Forwarded-For", "X-Real-IP", "X-Client-IP", "True-Client-IP", "X-Internal-Ip"):
        yield name, "198.51.100.7"
    yield "Forwarded", "for=198.51.100.7;host=evil.example;proto=https"
    yield "X-Forwarded-Host", "evil.example"
    yield "X-Forwarded-Proto", "https"
    yield "X-Forwarded-Prefix", "/evil"
    yield REQUEST_ID, "f" * 32
    yield "X-Request-Id", "f" * 32
    yield TENANT_VERSION_HEADER, "f" * 32
    yield AUDIT_HEADER, '{"username": "mallory"}'
    for name in ("X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Method-Override"):
        yield name, "/internal/find_tenant" if "Url" in name else "DELETE"


async def test_forwarding_headers_of_a_caller_are_ignored(either: Api, other_tenant: Api) -> None:
    stranger = Caller(Tenant(other_tenant.tenant_id)).as_administrator("mallory", "x", ADMINISTRATOR)
    token = {INTERNAL_TOKEN: sign(KEY, stranger, service="catalog_service", operation="add_package")}
    name = f"Forged.{other_tenant.tenant_id}"
    form = {"package_id": name, "package_name": "x", "package_publisher": "x"}
    answer = await either.call("POST", "add_package", data=form, headers={**dict(forged()), **token})
    assert answer.status == 200, answer.body
    assert answer.headers["X-Request-Id"] != "f" * 32
    assert not [header for header in answer.headers if header.lower().startswith("x-internal")]
    entry = (await either.call("GET", "get_audit_log")).body[0]
    assert entry["request_id"] == answer.headers["X-Request-Id"]
    assert (entry["ip"], entry["user"], entry["target"]) == ("127.0.0.1", "admin", {"package_id": name})
    assert (await other_tenant.call("POST", "get_packages")).body == []


async def test_addresses_in_responses_have_the_host_of_the_request(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    published = await publish(tenant, name)
    answer = await tenant.call("GET", "get_specific_package_version", published.uid, headers=dict(forged()))
    assert answer.body["INSTALLER_URL"].startswith(f"{tenant.base_url}/download/")


async def test_the_gateway_does_not_accept_an_internal_token(each: Api) -> None:
    caller = Caller(Tenant(each.tenant_id)).as_administrator("admin", "x", ADMINISTRATOR)
    for row in OPERATIONS:
        token = {INTERNAL_TOKEN: sign(KEY, caller, service=row.service, operation=row.name)}
        expected = await each.anonymous().call(row.method, *segments(row, UNKNOWN))
        answer = await each.anonymous().call(row.method, *segments(row, UNKNOWN), headers=token)
        assert answer.status == expected.status


async def test_forged_headers_do_not_bypass_allowed_networks(services: Services) -> None:
    tenant = await services.tenant()
    shut = make_tenant(allowed_networks=("198.51.100.0/24",))
    await services.operator.tenants.create(shut)
    headers = {**tenant.headers, **dict(forged())}
    for row in OPERATIONS:
        answer = await services.api(shut.tenant_id).call(row.method, *segments(row, UNKNOWN), headers=headers)
        assert (answer.status, answer.body["code"]) == (403, 403 if row.is_winget else "network_not_allowed")


async def test_the_caller_is_the_hop_before_a_trusted_proxy(services: Services, redis_url: str, tenant: Api) -> None:
    hops = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9", "X-Forwarded-Host": "packages.example.com"}
    hops["X-Forwarded-Proto"] = "https"
    trusted: dict[str, Any] = {"trusted_proxies": "127.0.0.0/8"}
    async with run_gateway(services, redis_url, **trusted) as address:
        behind = at_gateway(tenant, address)
        form = {"package_id": f"Behind.{tenant.tenant_id}", "package_name": "a", "package_publisher": "a"}
        assert (await behind.call("POST", "add_package", data=form, headers=hops)).status == 200
    entry = (await tenant.call("GET", "get_audit_log")).body[0]
    assert entry["ip"] == "203.0.113.9"
