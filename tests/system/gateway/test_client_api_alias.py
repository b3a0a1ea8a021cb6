"""The second address of a tenant, `/client/api/{tenant_id}`, in the multi-tenant deployment."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from yarl import URL

from common.auth.internal_tokens import Deployment
from tests.support.factories import make_tenant
from tests.support.metrics import fetch_metrics
from tests.support.system.publishing import add_package, download, package_id, publish
from tests.support.system.raw_http import send_raw
from tests.support.system.services import PASSWORD, Api, Services
from tests.support.tables import each
from tests.support.winget.client import WingetClient


@pytest.fixture
def alias(tenant: Api) -> Api:
    return tenant.by_alias()


async def add_client(api: Api) -> dict[str, str]:
    """Add a client. Returns the form that the desktop program sends."""
    answer = await api.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex}.example"})
    assert answer.status == 201, answer.body
    return {"Auth-Token": answer.body["auth_token"], "Client": "1"}


async def test_the_desktop_client_gets_its_catalog_at_the_alias(enforcing: Api) -> None:
    api, name = await enforcing.signed_in(), package_id()
    form = await add_client(api)
    await add_package(api, name)
    answer = await enforcing.by_alias().anonymous().call("POST", "get_packages", data=form)
    assert answer.status == 200
    assert name in {package["PACKAGE_ID"] for package in answer.body}


async def test_the_desktop_client_gets_the_client_version_at_the_alias(enforcing: Api) -> None:
    form = await add_client(await enforcing.signed_in())
    answer = await enforcing.by_alias().anonymous().call("POST", "client_version", data=form)
    assert (answer.status, answer.body["Version"]) == (200, "0.0.0.0")


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


async def test_a_client_without_a_valid_token_is_rejected_at_the_alias(enforcing: Api) -> None:
    for form in ({}, {"Auth-Token": str(uuid4()), "Client": "1"}):
        answer = await enforcing.by_alias().anonymous().call("POST", "get_packages", data=form)
        assert (answer.status, answer.body["code"]) == (401, "not_authenticated")


async def test_a_version_published_at_the_alias_can_be_downloaded(alias: Api) -> None:
    name = package_id()
    await add_package(alias, name)
    published = await publish(alias, name)
    (version,) = (await alias.call("GET", "get_package_versions", name)).body
    assert await download(alias, version["INSTALLER_URL"]) == published.content


async def test_a_signed_download_works_at_the_alias(tenant: Api, alias: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    published = await publish(tenant, name)
    (version,) = (await tenant.call("GET", "get_package_versions", name)).body
    link = URL(version["INSTALLER_URL"])
    answer = await alias.anonymous().call("GET", *link.parts[2:], params=link.query)
    assert (answer.status, answer.body) == (200, published.content)


async def test_winget_searches_shows_and_installs_at_the_alias(alias: Api) -> None:
    winget, name = WingetClient(alias.session, f"{alias.base_url}/winget"), package_id()
    await add_package(alias, name)
    published = await publish(alias, name)
    information = await winget.add()
    assert information["SourceIdentifier"] == f"pkgrepo-{alias.tenant_id}"
    assert [hit.package_id for hit in await winget.search(name)] == [name]
    assert await winget.install(name) == published.content


@pytest.mark.parametrize("page", ["docs", "openapi.json", "docs/assets/docs.js", "sign_in", "dashboard/packages/A%20B"])
async def test_a_page_at_the_alias_redirects_to_the_short_address(alias: Api, page: str) -> None:
    url = urlsplit(alias.base_url)
    answer = await send_raw(f"{url.scheme}://{url.netloc}", "GET", f"{url.path}/{page}?next=/a%20b&x=//y", {})
    assert (answer.status, answer.headers["Location"]) == (307, f"/{alias.tenant_id}/{page}?next=/a%20b&x=//y")


async def test_a_sign_in_at_the_alias_is_sent_again_to_the_short_address(alias: Api) -> None:
    form = {"username": "admin", "password": PASSWORD}
    answer = await alias.anonymous().call("POST", "sign_in", data=form)
    assert (answer.status, answer.headers["Location"]) == (307, f"/{alias.tenant_id}/sign_in")


async def test_a_page_of_an_unknown_tenant_does_not_redirect(alias: Api, services: Services) -> None:
    answer = await services.api("nobody").by_alias().call("GET", "docs")
    assert (answer.status, answer.body["code"]) == (404, "tenant_not_found")


async def test_the_alias_checks_the_networks_of_the_tenant(services: Services) -> None:
    tenant = make_tenant(allowed_networks=("192.0.2.0/24",))
    await services.operator.tenants.create(tenant)
    for operation in ("test", "docs"):
        answer = await services.api(tenant.tenant_id).by_alias().call("GET", operation)
        assert (answer.status, answer.body["code"]) == (403, "network_not_allowed")


async def test_the_audit_log_names_the_same_operation_for_the_alias(alias: Api) -> None:
    name = package_id()
    await add_package(alias, name)
    assert (await alias.call("DELETE", "delete_package", name)).status == 200
    entry = (await alias.call("GET", "get_audit_log")).body[0]
    assert (entry["operation"], entry["target"]) == ("delete_package", {"package_id": name})


async def test_metrics_count_the_alias_under_the_route_of_the_operation(services: Services, alias: Api) -> None:
    async def count() -> float:
        figures = await fetch_metrics(services.session, services.management[Deployment.MULTI])
        labels = {"method": "GET", "route": "/{tenant_id}/get_blacklist_groups", "status": "200", "service": "gateway"}
        return figures.value("pkgrepo_requests_total", **labels)

    before = await count()
    assert (await alias.call("GET", "get_blacklist_groups")).status == 200
    assert await count() == before + 1


async def test_failed_logins_count_together_at_both_addresses(services: Services, tenant: Api) -> None:
    wrong = {"username": "admin", "password": "not the password"}
    for number in range(10):
        api = tenant.by_alias() if number % 2 else tenant
        assert (await api.anonymous().call("POST", "login", data=wrong)).status == 401
    for api in (tenant, tenant.by_alias()):
        assert (await api.anonymous().call("POST", "login", data=wrong)).status == 429
    await services.failures.forget("address:127.0.0.1")


async def test_the_single_tenant_deployment_has_no_alias(single: Api) -> None:
    answer = await single.call("GET", single.tenant_id, "test")
    assert (answer.status, answer.body["code"]) == (404, "operation_not_found")
