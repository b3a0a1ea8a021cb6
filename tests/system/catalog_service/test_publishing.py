"""Publishing, download and deletion of versions in both deployments, concurrent equal requests, and statistics."""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from aiohttp import FormData

from tests.support.api import Answer
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.pe_builder import make_zip
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


async def test_an_installer_sent_in_chunks_is_downloaded_unchanged(either: Api) -> None:
    name, content = package_id(), os.urandom(2_500_000)
    await add_package(either, name)
    published = await publish(either, name, content=content)
    version = await version_of(either, published)
    assert await download(either, version["INSTALLER_URL"]) == content
    assert version["INSTALLER_SHA256"] == hashlib.sha256(content).hexdigest()


async def test_an_installer_sent_in_one_call_is_downloaded_unchanged(either: Api) -> None:
    name, content = package_id(), os.urandom(2_500_000)
    await add_package(either, name)
    published = await publish_in_one_call(either, name, content=content)
    version = await version_of(either, published)
    assert await download(either, version["INSTALLER_URL"]) == content
    assert version["INSTALLER_SHA256"] == published.sha256


async def test_missing_form_fields_are_read_from_the_installer(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    form = FormData({"switch_Silent": "/quiet"})
    form.add_field("file", MACHINE_MSI, filename="tiny.msi")
    answer = await either.call("POST", "add_package_version", name, data=form)
    assert answer.status == 201, answer.body
    version = (await either.call("GET", "get_specific_package_version", answer.body["UID"])).body
    fields = ("VERSION", "ARCHITECTURE", "INSTALLER_TYPE", "INSTALLER_SCOPE", "PRODUCTCODE")
    assert [version[field] for field in fields] == [
        *("1.2.3.4", "x64", "MSI", "machine", "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}")
    ]


async def test_a_strict_tenant_rejects_fields_that_contradict_the_file(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    assert (await tenant.call("PATCH", "edit_settings", data={"strict_installers": "true"})).status == 200
    for file_type, status in (("ZIP", 400), ("MSI", 201)):
        form = FormData({**INSTALLER, "package_version": "1", "file_type": file_type})
        form.add_field("file", MACHINE_MSI, filename="tiny.msi")
        answer = await tenant.call("POST", "add_package_version", name, data=form)
        assert answer.status == status, answer.body


async def test_hostile_installers_do_not_delay_another_strict_tenant(services: Services, tenant: Api) -> None:
    name, hostile = package_id(), package_id()
    other = await services.tenant()
    await add_package(tenant, name)
    await add_package(other, hostile)
    assert (await tenant.call("PATCH", "edit_settings", data={"strict_installers": "true"})).status == 200
    text = f"<Package><Properties><DisplayName>{'&#65;' * 800_000}</DisplayName></Properties></Package>"

    files = [await upload(other, make_zip({"AppxManifest.xml": text, f"{number}": ""})) for number in range(4)]
    forms = [
        {**INSTALLER, "package_version": f"{number}", "file_type": "MSIX", "server_filename": file}
        for number, file in enumerate(files)
    ]
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(other.call("POST", "add_package_version", hostile, data=form)) for form in forms]
        published = await publish(tenant, name, content=MACHINE_MSI, file_type="MSI")
    assert (await version_of(tenant, published))["INSTALLER_TYPE"] == "MSI"
    assert [call.result().status for call in calls] == [201] * 4


async def test_the_catalog_lists_published_versions(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    old, new = await publish(either, name, "1.9"), await publish(either, name, "1.10")
    package = (await catalog(either))[name]
    assert package == {
        "PACKAGE_ID": name,
        "PACKAGE_NAME": "Roadrunner Trap",
        "PACKAGE_PUBLISHER": "Acme",
        "PACKAGE_DESCRIPTION": "",
        "PACKAGE_LOGO": "",
        "PACKAGE_ACTIVE": "1",
        "VERSIONS": ["1.10", "1.9"],
        "VERSIONS_UID": [new.uid, old.uid],
    }


async def test_a_version_has_the_fields_of_the_interface(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    published = await publish(either, name, package_locale="de-DE", channel="beta")
    version = await version_of(either, published)
    assert version.pop("INSTALLER_URL").startswith(f"{either.base_url}/download/")
    assert version == {
        "PACKAGE_ID": name,
        "VERSION": "1.0",
        "LOCALE": "de-DE",
        "ARCHITECTURE": "x64",
        "INSTALLER_TYPE": "EXE",
        "INSTALLER_SHA256": published.sha256,
        "INSTALLER_SCOPE": "machine",
        "UID": published.uid,
        "INSTALLER_NESTED_TYPE": "",
        "PRODUCTCODE": "",
        "UPGRADECODE": "",
        "PACKAGE_FAMILY_NAME": "",
        "CHANNEL": "beta",
        "NESTED_PACKAGE_INSTALLER_PATHS": [],
    }


async def test_an_existing_version_is_rejected_in_both_forms(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    published = await publish(either, name)
    form = {**INSTALLER, "package_version": "1.0", "server_filename": await upload(either, b"again")}
    assert (await either.call("POST", "add_package_version", name, data=form)).status == 409
    one_call = FormData({**INSTALLER, "package_version": "1.0"})
    one_call.add_field("file", b"again", filename="setup.exe")
    assert (await either.call("POST", "add_package_version", name, data=one_call)).status == 409
    assert await download(either, (await version_of(either, published))["INSTALLER_URL"]) == published.content


async def test_a_rejected_version_leaves_no_file(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    form = FormData({**INSTALLER, "package_version": ""})
    form.add_field("file", b"x" * 1000, filename="setup.exe")
    assert (await tenant.call("POST", "add_package_version", name, data=form)).status == 400
    information = (await tenant.call("GET", "server_information")).body
    assert (information["storage_used"], information["storage_reserved"]) == (0, 0)


async def test_a_deleted_version_is_removed_with_its_file(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    deleted, other = await publish(either, name, "1"), await publish(either, name, "2")
    url = (await version_of(either, deleted))["INSTALLER_URL"]
    answer = await either.call("DELETE", "delete_package_version", name, data={"versions_uids": deleted.uid})
    assert (answer.status, answer.body) == (200, {"Message": "Package versions deleted successfully!"})
    assert (await either.call("GET", "get_specific_package_version", deleted.uid)).status == 404
    async with either.session.get(url) as response:
        assert response.status == 404
    assert (await catalog(either))[name]["VERSIONS_UID"] == [other.uid]


async def test_a_deleted_package_frees_its_storage(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    await publish(tenant, name, content=b"x" * 5000)
    assert (await tenant.call("GET", "server_information")).body["storage_used"] == 5000
    answer = await tenant.call("DELETE", "delete_package", name)
    assert (answer.status, answer.body) == (200, {"Message": "Package was deleted successfully!"})
    assert (await tenant.call("GET", "server_information")).body["storage_used"] == 0
    assert name not in await catalog(tenant)
    assert (await tenant.call("GET", "get_package_versions", name)).status == 404


async def test_a_full_quota_answers_407_to_a_chunk_and_to_one_call(services: Services) -> None:
    tenant = await services.tenant(storage_quota=10_000)
    name = package_id()
    await add_package(tenant, name)
    await publish(tenant, name, content=b"x" * 9_000)
    answer = await send_chunk(tenant, "too-much", b"x" * 1_001, 0, 100)
    assert (answer.status, answer.body["code"]) == (407, "storage_exceeded")
    form = FormData({**INSTALLER, "package_version": "2"})
    form.add_field("file", b"x" * 1_001, filename="setup.exe")
    assert (await tenant.call("POST", "add_package_version", name, data=form)).status == 407
    assert (await tenant.call("GET", "server_information")).body["storage_used"] == 9_000


async def test_a_rejected_chunk_reports_the_offset_of_its_transfer(either: Api) -> None:
    content, file_id = os.urandom(100), uuid4().hex
    await send_chunk(either, file_id, content, 0, 40)
    gap = await send_chunk(either, file_id, content, 50, 60)
    headers = {"X-File-ID": file_id, "Content-Range": "bytes 40-"}
    malformed = await either.call("POST", "upload_package_version", headers=headers)
    for answer, code in ((gap, "unexpected_chunk"), (malformed, "invalid_request")):
        assert (answer.status, answer.body["code"]) == (400, code)
        assert (answer.body["received"], answer.body["total"]) == (40, 100)


async def test_a_first_chunk_above_the_quota_reports_offset_0(services: Services) -> None:
    answer = await send_chunk(await services.tenant(storage_quota=10), "too-much", b"x" * 11, 0, 11)
    assert (answer.status, answer.body["received"]) == (407, 0)


async def test_an_upload_continues_at_the_reported_offset(tenant: Api) -> None:
    content, file_id = os.urandom(5000), uuid4().hex
    await send_chunk(tenant, file_id, content, 0, 1000)
    server_filename = await RetryingClient(tenant).upload(content, chunk=1500, file_id=file_id)
    state = (await tenant.call("GET", "upload_package_version", headers={"X-File-ID": file_id})).body
    assert (state["server_filename"], state["sha256"]) == (server_filename, hashlib.sha256(content).hexdigest())


async def test_a_range_of_an_installer_can_be_downloaded(tenant: Api) -> None:
    name, content = package_id(), os.urandom(100_000)
    await add_package(tenant, name)
    url = (await version_of(tenant, await publish(tenant, name, content=content)))["INSTALLER_URL"]
    async with tenant.session.get(url, headers={"Range": "bytes=1000-1999"}) as response:
        assert response.status == 206
        assert response.headers["Content-Range"] == "bytes 1000-1999/100000"
        assert await response.read() == content[1000:2000]
    async with tenant.session.head(url) as response:
        assert (response.status, response.headers["Content-Length"]) == (200, "100000")
        assert response.headers["ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'


async def test_an_altered_download_address_is_rejected(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    url = (await version_of(tenant, await publish(tenant, name)))["INSTALLER_URL"]
    for altered in (url.replace("signature=", "signature=0"), url.replace("expires=1", "expires=2")):
        async with tenant.session.get(altered) as response:
            assert response.status == 403


async def test_a_finished_upload_is_announced_to_the_catalog(tenant: Api) -> None:
    server_filename = await upload(tenant, b"announced")

    async def listed() -> bool:
        body = (await tenant.call("GET", "get_finished_uploads")).body
        return [(row["server_filename"], row["size"]) for row in body] == [(server_filename, 9)]

    await until(listed)


async def test_a_package_can_be_hidden_and_shown_again(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    assert (await either.call("PATCH", "set_package_active", name, data={"package_active": "0"})).status == 200
    assert name not in await catalog(either)
    assert (await catalog(either, params={"include_disabled": "true"}))[name]["PACKAGE_ACTIVE"] == "0"
    assert (await either.call("PATCH", "set_package_active", name, data={"package_active": "1"})).status == 200
    assert name in await catalog(either)


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


async def downloaded_version(api: Api) -> Published:
    """Publish a version and download it twice from the same address."""
    name = package_id()
    await add_package(api, name)
    published = await publish(api, name)
    for _ in range(2):
        await download(api, (await version_of(api, published))["INSTALLER_URL"])
    return published


async def rows_of(api: Api, published: Published) -> list[dict[str, Any]]:
    answer = await api.call("GET", "get_statistics", params={"days": "2"})
    assert answer.status == 200, answer.body
    return [row for row in answer.body if row["uid"] == published.uid]


async def test_downloads_are_counted_in_both_deployments(either: Api) -> None:
    published = await downloaded_version(either)

    async def is_counted() -> bool:
        return bool(await rows_of(either, published))

    await until(is_counted)
    (row,) = await rows_of(either, published)
    assert (row["package_id"], row["version"]) == (published.package_id, "1.0")
    today = datetime.now(UTC).date()
    assert row["days"].keys() <= {today.isoformat(), (today - timedelta(days=1)).isoformat()}
    assert row["downloads"] == sum(row["days"].values()) > 0
    csv = (await either.call("GET", "get_statistics", params={"format": "csv"})).body.decode()
    assert published.uid in csv


async def test_statistics_show_no_other_tenant(tenant: Api, other_tenant: Api) -> None:
    published = await downloaded_version(tenant)

    async def is_counted() -> bool:
        return bool(await rows_of(tenant, published))

    await until(is_counted)
    assert await rows_of(other_tenant, published) == []


async def test_statistics_require_an_administrator(either: Api) -> None:
    assert (await either.anonymous().call("GET", "get_statistics")).status == 401
