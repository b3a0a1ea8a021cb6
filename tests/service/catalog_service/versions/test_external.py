"""Versions with external installers, over HTTP."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from catalog_service.model.versions import PendingVersion
from catalog_service.versions.forms import new_version
from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.http.forms import Form
from common.tenants import VersionKey
from tests.support.factories import make_caller, make_tenant
from tests.support.services.catalog import EXTERNAL, Catalog, version_form
from tests.support.winget.rules import check_manifest

PACKAGE = "Acme.Editor"
ADDRESS, DIGEST = EXTERNAL["installer_url"], EXTERNAL["installer_sha256"]


@pytest.fixture
async def caller(catalog: Catalog) -> Caller:
    """An administrator of a tenant with the package Acme.Editor."""
    return await administrator(catalog)


async def administrator(catalog: Catalog, **settings: Any) -> Caller:
    caller = make_caller(make_tenant(**settings))
    await catalog.add_package(caller, PACKAGE)
    return caller


async def add(catalog: Catalog, caller: Caller, **fields: str) -> str:
    return await catalog.add_version(caller, PACKAGE, **{**EXTERNAL, **fields})


async def details(catalog: Catalog, caller: Caller, uid: str) -> dict[str, Any]:
    version: dict[str, Any] = (await catalog.call(caller, "GET", "get_version_details", uid)).body
    return version


async def shown_to_winget(catalog: Catalog, caller: Caller) -> list[dict[str, Any]]:
    """The installers of the newest version."""
    headers = {"Version": "1.12.0"}
    answer = await catalog.call(caller, "GET", "winget/packageManifests", PACKAGE, headers=headers)
    assert answer.status == 200, answer.body
    check_manifest(answer.body["Data"], 12)
    installers: list[dict[str, Any]] = answer.body["Data"]["Versions"][0]["Installers"]
    return installers


async def test_the_url_and_the_digest_are_returned_as_sent(catalog: Catalog, caller: Caller) -> None:
    uid = await add(catalog, caller, installer_sha256=DIGEST.upper())

    version = await catalog.version(caller, uid)

    assert (version["INSTALLER_URL"], version["INSTALLER_SHA256"]) == (ADDRESS, DIGEST)
    assert await catalog.versions(caller, PACKAGE) == [version]
    (installer,) = await shown_to_winget(catalog, caller)
    assert (installer["InstallerUrl"], installer["InstallerSha256"]) == (ADDRESS, DIGEST.upper())


async def test_the_installer_is_not_requested_from_upload_service(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)

    assert catalog.stubs.operations == []


async def test_an_external_version_needs_no_upload_service(catalog: Catalog) -> None:
    caller = await administrator(catalog, strict_installers=True)
    catalog.stubs.refusal = Unavailable("away")

    await add(catalog, caller)

    assert len(await catalog.versions(caller, PACKAGE)) == 1


async def test_details_mark_external_installers(catalog: Catalog, caller: Caller) -> None:
    external, stored = await add(catalog, caller), await catalog.add_version(caller, PACKAGE, package_version="2.0")

    external_details, stored_details = await details(catalog, caller, external), await details(catalog, caller, stored)

    assert (
        external_details["installer_url"],
        external_details["installer_sha256"],
        external_details["winget_refusals"],
    ) == (ADDRESS, DIGEST, [])
    assert (stored_details["installer_url"], stored_details["installer_sha256"]) == ("", "")
    assert external_details.keys() == stored_details.keys()


@pytest.mark.parametrize("field", ["package_version", "file_architect", "file_type", "file_scope"])
async def test_fields_of_the_installer_are_required(catalog: Catalog, caller: Caller, field: str) -> None:
    answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, field: ""})

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    "fields",
    [
        {"installer_sha256": ""},
        {"installer_url": "https://169.254.169.254/latest/meta-data"},
        {"server_filename": "file.msi"},
    ],
)
async def test_a_refused_version_leaves_no_data(catalog: Catalog, caller: Caller, fields: dict[str, str]) -> None:
    answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, **fields})

    assert answer.status == 400
    assert await catalog.count_records(caller) == 1
    assert catalog.stubs.operations == []


async def test_a_version_is_unique_with_external_installers_too(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)
    await catalog.add_version(caller, PACKAGE, package_version="2.0")

    for existing in ("1.0", "2.0"):
        answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, "package_version": existing})
        assert (answer.status, answer.body["code"]) == (409, "version_exists")
    assert (await catalog.post_version(caller, PACKAGE)).status == 409


async def test_stored_and_external_installers_share_one_version(catalog: Catalog) -> None:
    caller = await administrator(catalog, version_key=VersionKey.INSTALLER)
    await add(catalog, caller)
    await catalog.add_version(caller, PACKAGE, file_architect="arm64")

    again = await catalog.post_version(
        caller, PACKAGE, **{**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}
    )

    assert (again.status, again.body["code"]) == (409, "version_exists")
    addresses = {
        installer["Architecture"]: installer["InstallerUrl"] for installer in await shown_to_winget(catalog, caller)
    }
    assert addresses["x64"] == ADDRESS
    assert addresses["arm64"].startswith(f"{caller.base_url}/download/")


async def test_one_of_many_concurrent_equal_requests_wins(catalog: Catalog, caller: Caller) -> None:
    answers = await asyncio.gather(*(catalog.post_version(caller, PACKAGE, **EXTERNAL) for _ in range(20)))

    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    assert len(await catalog.versions(caller, PACKAGE)) == 1


async def interrupted_creation(catalog: Catalog, caller: Caller) -> PendingVersion:
    """A version after a crash between the two steps of its creation."""
    form = Form({name: (value,) for name, value in version_form(**EXTERNAL).items()})
    package_uid = await catalog.store.versions.package_uid(caller.tenant_id, PACKAGE)
    pending = PendingVersion(caller.tenant_id, str(package_uid), new_version(form, PACKAGE))
    await catalog.store.versions.reserve(pending, pending.version.version)
    return pending


async def test_an_interrupted_creation_is_finished_by_the_sweeper(catalog: Catalog, caller: Caller) -> None:
    pending = await interrupted_creation(catalog, caller)
    assert await catalog.versions(caller, PACKAGE) == []

    await catalog.age_and_sweep()

    (version,) = await catalog.versions(caller, PACKAGE)
    assert (version["UID"], version["INSTALLER_URL"]) == (pending.version.uid, ADDRESS)
    assert catalog.stubs.operations == []


async def test_the_same_request_finishes_an_interrupted_creation(catalog: Catalog, caller: Caller) -> None:
    pending = await interrupted_creation(catalog, caller)
    other = {**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}

    assert (await catalog.post_version(caller, PACKAGE, **other)).status == 409
    assert await add(catalog, caller) == pending.version.uid


@pytest.mark.parametrize("whole_package", [False, True])
async def test_an_external_version_can_be_deleted(catalog: Catalog, caller: Caller, whole_package: bool) -> None:
    uid, kept_version = await add(catalog, caller), await catalog.add_version(caller, PACKAGE, package_version="2.0")

    if whole_package:
        answer = await catalog.call(caller, "DELETE", "delete_package", PACKAGE)
    else:
        data = {"versions_uids": uid}
        answer = await catalog.call(caller, "DELETE", "delete_package_version", PACKAGE, data=data)

    assert answer.status == 200
    assert await catalog.count_records(caller) == (0 if whole_package else 2)
    assert catalog.stubs.linked_uids == (set() if whole_package else {kept_version})


async def test_versions_racing_the_deletion_of_their_package_leave_nothing(catalog: Catalog, caller: Caller) -> None:
    async def delete() -> int:
        return (await catalog.call(caller, "DELETE", "delete_package", PACKAGE)).status

    async def make(number: int) -> int:
        return (await catalog.post_version(caller, PACKAGE, **EXTERNAL, package_version=str(number))).status

    results = await asyncio.gather(*(make(number) for number in range(20)), delete(), *(make(n) for n in range(20, 40)))

    assert results.pop(20) == 200
    assert set(results) <= {201, 404}
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 0


async def test_the_catalog_of_its_tenant_shows_a_new_external_version(catalog: Catalog, caller: Caller) -> None:
    other_tenant = make_caller()
    assert [package["VERSIONS"] for package in await catalog.packages(caller)] == [[]]

    uid = await add(catalog, caller)

    assert [package["VERSIONS_UID"] for package in await catalog.packages(caller)] == [[uid]]
    assert (await catalog.call(other_tenant, "GET", "get_specific_package_version", uid)).status == 404
    assert (await catalog.call(other_tenant, "GET", "get_version_details", uid)).status == 404


async def test_an_external_version_is_neither_unassigned_nor_damaged(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)

    assert (await catalog.call(caller, "GET", "get_finished_uploads")).body == []
    assert (await catalog.call(caller, "GET", "get_damaged_installers")).body == []
    assert await catalog.database["finished_uploads"].count_documents({"tenant_id": caller.tenant_id}) == 0


async def test_the_audit_log_has_the_host_and_no_secret_of_a_url(catalog: Catalog, caller: Caller) -> None:
    address = f"https://downloads.example.com:8443/{uuid4()}/editor.msi?token=secret"

    answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, "installer_url": address})

    assert answer.audit_target == {
        "package_id": PACKAGE,
        "version": "1.0",
        "installer_host": "downloads.example.com:8443",
        "sha256": DIGEST,
        "uid": answer.body["UID"],
    }
