"""Every operation of clients shows each caller the versions of the own ring, and no others."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from gateway.operations import CATALOG, OPERATIONS, Access
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell

WINGET_TOKEN = "Windows-Package-Manager"
Versions = Callable[[Api, str, str], Awaitable[set[str]]]


async def in_catalog(api: Api, name: str, token: str) -> set[str]:
    answer = await api.call("POST", "get_packages", data={"auth_token": token})
    return {version for package in answer.body if package["PACKAGE_ID"] == name for version in package["VERSIONS"]}


async def in_search(api: Api, name: str, token: str) -> set[str]:
    body = {"Filters": [{"PackageMatchField": "PackageIdentifier", "RequestMatch": match(name)}]}
    answer = await api.call("POST", "winget", "manifestSearch", json=body, headers={WINGET_TOKEN: token})
    found = answer.body["Data"] if answer.status == 200 else []
    return {version["PackageVersion"] for package in found for version in package["Versions"]}


async def in_manifest(api: Api, name: str, token: str) -> set[str]:
    answer = await api.call("GET", "winget", "packageManifests", name, headers={WINGET_TOKEN: token})
    versions = answer.body["Data"]["Versions"] if answer.status == 200 else []
    return {version["PackageVersion"] for version in versions}


def match(name: str) -> Mapping[str, Any]:
    return {"KeyWord": name, "MatchType": "Exact"}


OPERATIONS_OF_CLIENTS: Mapping[str, Versions] = {
    "get_packages": in_catalog,
    "winget/manifestSearch": in_search,
    "winget/packageManifests": in_manifest,
}


def test_the_matrix_has_each_operation_of_clients() -> None:
    of_clients = [row for row in OPERATIONS if row.access in {Access.CLIENT, Access.PACKAGE_MANAGER}]
    assert {row.name for row in of_clients if row.service == CATALOG} == OPERATIONS_OF_CLIENTS.keys()


@pytest.mark.full
async def test_each_caller_sees_the_versions_of_the_own_ring_only(services: Services) -> None:
    tenant, name = await services.tenant(), package_id()
    await add_package(tenant, name)
    await publish(tenant, name, "1.0")
    assert (await tenant.call("PATCH", "edit_settings", data={"rings": "pilot,broad,everyone"})).status == 200
    await publish(tenant, name, "2.0")
    promoted = await publish(tenant, name, "1.5")
    answer = await tenant.call("POST", "promote_version", promoted.uid, data={"ring": "broad"})
    assert answer.status == 200, answer.body
    seen = {"pilot": {"1.0", "1.5", "2.0"}, "broad": {"1.0", "1.5"}, "everyone": {"1.0"}, "": {"1.0"}}
    callers: list[tuple[str, Api, str, set[str]]] = [("administrator", tenant, "", seen["pilot"])]
    callers.append(("nobody", tenant.anonymous(), "", seen[""]))
    for ring, versions in seen.items():
        client = (await tenant.call("POST", "add_client", data={"client_name": f"pc-{ring or 'none'}"})).body
        assert (await tenant.call("PATCH", "edit_client", client["client_id"], data={"ring": ring})).status == 200
        callers.append((f"client of {ring or 'no ring'}", tenant.anonymous(), client["auth_token"], versions))
    with every_cell() as cell:
        for operation, versions_in in OPERATIONS_OF_CLIENTS.items():
            for label, api, token, expected in callers * 2:  # The second answer comes from a cache.
                with cell(operation, label):
                    assert await versions_in(api, name, token) == expected
