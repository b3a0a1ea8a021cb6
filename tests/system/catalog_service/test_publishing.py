"""Publishing, download and deletion of versions, concurrent equal requests, and statistics."""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import FormData

from tests.support.api import Answer
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.system.publishing import (
    INSTALLER,
    Published,
    add_package,
    catalog,
    download,
    package_id,
    publish,
    publish_in_one_call,
    send_chunk,
    upload,
    version_of,
)
from tests.support.system.services import Api, Services
from tests.support.wait import until

CALLERS = 30
SIZE = 1000  # bytes of an installer


@pytest.fixture
async def name(tenant: Api) -> str:
    """A package of the tenant."""
    name = package_id()
    await add_package(tenant, name)
    return name


def one_call_form(content: bytes, **fields: str) -> FormData:
    form = FormData({**INSTALLER, "package_version": "1.0", **fields})
    form.add_field("file", content, filename="setup.exe")
    return form


async def storage(api: Api) -> tuple[int, int]:
    """The used and reserved bytes."""
    body = (await api.call("GET", "server_information")).body
    return body["storage_used"], body["storage_reserved"]


@pytest.mark.parametrize("send", [publish, publish_in_one_call], ids=["in chunks", "in one call"])
async def test_a_sent_installer_is_downloaded_unchanged(either: Api, send: Callable[..., Awaitable[Published]]) -> None:
    name, content = package_id(), os.urandom(2_500_000)
    await add_package(either, name)
    published = await send(either, name, content=content)
    version = await version_of(either, published)
    assert version["INSTALLER_URL"].startswith(f"{either.base_url}/download/")
    assert await download(either, version["INSTALLER_URL"]) == content
    assert version["INSTALLER_SHA256"] == hashlib.sha256(content).hexdigest()
    assert (await catalog(either))[name]["VERSIONS_UID"] == [published.uid]


async def test_missing_form_fields_are_read_from_the_installer(tenant: Api, name: str) -> None:
    form = FormData({"switch_Silent": "/quiet"})
    form.add_field("file", MACHINE_MSI, filename="tiny.msi")
    answer = await tenant.call("POST", "add_package_version", name, data=form)
    assert answer.status == 201, answer.body
    version = (await tenant.call("GET", "get_specific_package_version", answer.body["UID"])).body
    fields = ("VERSION", "ARCHITECTURE", "INSTALLER_TYPE", "INSTALLER_SCOPE", "PRODUCTCODE")
    expected = ["1.2.3.4", "x64", "MSI", "machine", "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}"]
    assert [version[field] for field in fields] == expected


async def test_a_strict_tenant_rejects_fields_that_contradict_the_file(tenant: Api, name: str) -> None:
    assert (await tenant.call("PATCH", "edit_settings", data={"strict_installers": "true"})).status == 200
    for file_type, status in (("ZIP", 400), ("MSI", 201)):
        form = one_call_form(MACHINE_MSI, file_type=file_type)
        answer = await tenant.call("POST", "add_package_version", name, data=form)
        assert answer.status == status, answer.body


async def test_a_rejected_version_leaves_no_file(tenant: Api, name: str) -> None:
    published = await publish(tenant, name, content=bytes(SIZE))
    for version, status in (("", 400), ("1.0", 409)):
        form = one_call_form(b"again" * 200, package_version=version)
        assert (await tenant.call("POST", "add_package_version", name, data=form)).status == status
        assert await storage(tenant) == (SIZE, 0), version
    assert await download(tenant, (await version_of(tenant, published))["INSTALLER_URL"]) == published.content


async def test_a_deleted_version_and_package_free_their_storage(tenant: Api, name: str) -> None:
    deleted, other = await publish(tenant, name, "1"), await publish(tenant, name, "2")
    url = (await version_of(tenant, deleted))["INSTALLER_URL"]
    answer = await tenant.call("DELETE", "delete_package_version", name, data={"versions_uids": deleted.uid})
    assert answer.status == 200
    async with tenant.session.get(url) as response:
        assert response.status == 404
    assert (await catalog(tenant))[name]["VERSIONS_UID"] == [other.uid]
    assert await storage(tenant) == (SIZE, 0)
    assert (await tenant.call("DELETE", "delete_package", name)).status == 200
    assert name not in await catalog(tenant)
    assert await storage(tenant) == (0, 0)


async def test_a_full_quota_answers_407_to_a_chunk_and_to_one_call(services: Services) -> None:
    tenant, name = await services.tenant(storage_quota=10_000), package_id()
    await add_package(tenant, name)
    await publish(tenant, name, content=b"x" * 9_000)
    chunk = await send_chunk(tenant, "too-much", b"x" * 1_001, 0, 100)
    assert (chunk.status, chunk.body["code"], chunk.body["received"]) == (407, "storage_exceeded", 0)
    form = one_call_form(b"x" * 1_001, package_version="2")
    assert (await tenant.call("POST", "add_package_version", name, data=form)).status == 407
    assert await storage(tenant) == (9_000, 0)


async def test_a_rejected_chunk_reports_the_offset_of_its_transfer(tenant: Api) -> None:
    content = os.urandom(100)
    await send_chunk(tenant, "f", content, 0, 40)
    gap = await send_chunk(tenant, "f", content, 50, 60)
    headers = {"X-File-ID": "f", "Content-Range": "bytes 40-"}
    malformed = await tenant.call("POST", "upload_package_version", headers=headers)
    for answer, code in ((gap, "unexpected_chunk"), (malformed, "invalid_request")):
        assert (answer.status, answer.body["code"]) == (400, code)
        assert (answer.body["received"], answer.body["total"]) == (40, 100)


async def test_a_range_of_an_installer_can_be_downloaded(tenant: Api, name: str) -> None:
    content = os.urandom(100_000)
    url = (await version_of(tenant, await publish(tenant, name, content=content)))["INSTALLER_URL"]
    async with tenant.session.get(url, headers={"Range": "bytes=1000-1999"}) as response:
        assert response.status == 206
        assert response.headers["Content-Range"] == "bytes 1000-1999/100000"
        assert await response.read() == content[1000:2000]
    async with tenant.session.head(url) as response:
        assert (response.status, response.headers["Content-Length"]) == (200, "100000")
        assert response.headers["ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'


async def test_a_finished_upload_is_announced_to_the_catalog(tenant: Api) -> None:
    server_filename = await upload(tenant, b"announced")

    async def listed() -> bool:
        body = (await tenant.call("GET", "get_finished_uploads")).body
        return [(row["server_filename"], row["size"]) for row in body] == [(server_filename, 9)]

    await until(listed)


@pytest.mark.parametrize(
    ("version", "files", "refused", "reserved"),
    [("1.0", CALLERS, 409, (CALLERS - 1) * SIZE), ("1.0", 1, 409, 0), ("1.{}", 1, 404, 0)],
    ids=["one version of many files", "one version many times", "many versions of one file"],
)
async def test_one_of_many_concurrent_publications_wins(
    tenant: Api, name: str, version: str, files: int, refused: int, reserved: int
) -> None:
    uploads = await asyncio.gather(*(upload(tenant, os.urandom(SIZE)) for _ in range(files)))

    async def add(number: int) -> Answer:
        form = {"package_version": version.format(number), "server_filename": uploads[number % files]}
        return await tenant.call("POST", "add_package_version", name, data={**INSTALLER, **form})

    statuses = Counter(answer.status for answer in await asyncio.gather(*map(add, range(CALLERS))))
    assert statuses == {201: 1, refused: CALLERS - 1}
    assert len((await tenant.call("GET", "get_package_versions", name)).body) == 1
    assert await storage(tenant) == (SIZE, reserved)


async def test_downloads_are_counted_for_their_own_tenant(tenant: Api, name: str, other_tenant: Api) -> None:
    published = await publish(tenant, name)
    for _ in range(2):
        await download(tenant, (await version_of(tenant, published))["INSTALLER_URL"])

    async def statistics(api: Api) -> list[dict[str, Any]]:
        answer = await api.call("GET", "get_statistics", params={"days": "2"})
        assert answer.status == 200, answer.body
        rows: list[dict[str, Any]] = answer.body
        return rows

    async def is_counted() -> bool:
        return bool(await statistics(tenant))

    await until(is_counted)
    (row,) = await statistics(tenant)
    assert (row["package_id"], row["version"], row["uid"]) == (name, "1.0", published.uid)
    assert row["downloads"] == sum(row["days"].values()) > 0
    assert await statistics(other_tenant) == []
    csv = (await tenant.call("GET", "get_statistics", params={"format": "csv"})).body.decode()
    assert published.uid in csv
