"""Many calls at one moment that want the same thing: one gets it, the others get the error of the interface."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.api import Answer
from tests.support.whole.publishing import INSTALLER, add_package, catalog, package_id, upload
from tests.support.whole.services import Api

RIVALS = 30
SIZE = 1000  # bytes of an installer


async def race(call: Callable[[int], Coroutine[Any, Any, Answer]]) -> Counter[int]:
    """The statuses of calls that are sent at once."""
    return Counter(answer.status for answer in await asyncio.gather(*map(call, range(RIVALS))))


async def add_version(api: Api, package: str, version: str, server_filename: str) -> Answer:
    form = {**INSTALLER, "package_version": version, "server_filename": server_filename}
    return await api.call("POST", "add_package_version", package, data=form)


async def storage(api: Api) -> tuple[int, int]:
    """Bytes used and reserved."""
    body = (await api.call("GET", "server_information")).body
    return body["storage_used"], body["storage_reserved"]


async def test_concurrent_packages_with_one_id_add_one_package(tenant: Api) -> None:
    name = package_id()
    form = {"package_id": name, "package_name": "Trap", "package_publisher": "Acme"}
    assert await race(lambda _: tenant.call("POST", "add_package", data=form)) == {200: 1, 401: RIVALS - 1}
    assert list(await catalog(tenant)) == [name]


async def test_concurrent_versions_with_one_name_add_one_version(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    files = await asyncio.gather(*(upload(tenant, os.urandom(SIZE)) for _ in range(RIVALS)))
    assert await race(lambda rival: add_version(tenant, name, "1.0", files[rival])) == {201: 1, 409: RIVALS - 1}
    assert (await catalog(tenant))[name]["VERSIONS"] == ["1.0"]
    assert await storage(tenant) == (SIZE, (RIVALS - 1) * SIZE)


async def test_a_version_sent_many_times_at_once_is_added_once(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    file = await upload(tenant, os.urandom(SIZE))
    assert await race(lambda _: add_version(tenant, name, "1.0", file)) == {201: 1, 409: RIVALS - 1}
    assert (await catalog(tenant))[name]["VERSIONS"] == ["1.0"]
    assert await storage(tenant) == (SIZE, 0)


async def test_concurrent_versions_of_one_file_add_one_version(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    file = await upload(tenant, os.urandom(SIZE))
    assert await race(lambda rival: add_version(tenant, name, f"1.{rival}", file)) == {201: 1, 404: RIVALS - 1}
    versions = (await tenant.call("GET", "get_package_versions", name)).body
    assert len(versions) == 1
    assert await storage(tenant) == (SIZE, 0)


async def test_concurrent_clients_with_one_name_add_one_client(tenant: Api) -> None:
    form = {"client_name": "pc-1.example.com"}
    assert await race(lambda _: tenant.call("POST", "add_client", data=form)) == {201: 1, 409: RIVALS - 1}
    clients = (await tenant.call("GET", "get_clients")).body
    assert [client["client_name"] for client in clients] == ["pc-1.example.com"]
