"""Concurrent equal requests: one succeeds, the others get the error of the interface."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.api import Answer
from tests.support.system.publishing import INSTALLER, add_package, catalog, package_id, upload
from tests.support.system.services import Api

CALLERS = 30
SIZE = 1000  # bytes of an installer


async def race(call: Callable[[int], Coroutine[Any, Any, Answer]]) -> Counter[int]:
    """Send calls at once. Returns the number of answers by status."""
    return Counter(answer.status for answer in await asyncio.gather(*map(call, range(CALLERS))))


async def add_version(api: Api, package: str, version: str, server_filename: str) -> Answer:
    form = {**INSTALLER, "package_version": version, "server_filename": server_filename}
    return await api.call("POST", "add_package_version", package, data=form)


async def storage(api: Api) -> tuple[int, int]:
    """The used and reserved bytes."""
    body = (await api.call("GET", "server_information")).body
    return body["storage_used"], body["storage_reserved"]


async def test_concurrent_packages_with_one_id_add_one_package(tenant: Api) -> None:
    name = package_id()
    form = {"package_id": name, "package_name": "Trap", "package_publisher": "Acme"}
    assert await race(lambda _: tenant.call("POST", "add_package", data=form)) == {200: 1, 401: CALLERS - 1}
    assert list(await catalog(tenant)) == [name]


async def test_concurrent_versions_with_one_name_add_one_version(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    files = await asyncio.gather(*(upload(tenant, os.urandom(SIZE)) for _ in range(CALLERS)))
    assert await race(lambda number: add_version(tenant, name, "1.0", files[number])) == {201: 1, 409: CALLERS - 1}
    assert (await catalog(tenant))[name]["VERSIONS"] == ["1.0"]
    assert await storage(tenant) == (SIZE, (CALLERS - 1) * SIZE)


async def test_a_version_sent_many_times_at_once_is_added_once(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    file = await upload(tenant, os.urandom(SIZE))
    assert await race(lambda _: add_version(tenant, name, "1.0", file)) == {201: 1, 409: CALLERS - 1}
    assert (await catalog(tenant))[name]["VERSIONS"] == ["1.0"]
    assert await storage(tenant) == (SIZE, 0)


async def test_concurrent_versions_of_one_file_add_one_version(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    file = await upload(tenant, os.urandom(SIZE))
    assert await race(lambda number: add_version(tenant, name, f"1.{number}", file)) == {201: 1, 404: CALLERS - 1}
    versions = (await tenant.call("GET", "get_package_versions", name)).body
    assert len(versions) == 1
    assert await storage(tenant) == (SIZE, 0)


async def test_concurrent_clients_with_one_name_add_one_client(tenant: Api) -> None:
    form = {"client_name": "pc-1.example.com"}
    assert await race(lambda _: tenant.call("POST", "add_client", data=form)) == {201: 1, 409: CALLERS - 1}
    clients = (await tenant.call("GET", "get_clients")).body
    assert [client["client_name"] for client in clients] == ["pc-1.example.com"]
