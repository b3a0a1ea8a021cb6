"""Versions whose installers stay where their makers have them, through catalog_service's own door."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from catalog_service.versions.forms import new_version
from catalog_service.versions.model import PendingVersion
from common.auth.callers import Caller
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
    """An administrator of a tenant that has the package Acme.Editor."""
    return await administrator(catalog)


async def administrator(catalog: Catalog, **settings: Any) -> Caller:
    caller = make_caller(make_tenant(**settings))
    await catalog.add_package(caller, PACKAGE)
    return caller


async def add(catalog: Catalog, caller: Caller, **fields: str) -> str:
    return await catalog.add_version(caller, PACKAGE, **{**EXTERNAL, **fields})


async def details(catalog: Catalog, caller: Caller, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = (await catalog.call(caller, "GET", "get_version_details", uid)).body
    return found


async def shown_to_winget(catalog: Catalog, caller: Caller) -> list[dict[str, Any]]:
    """The installers of the newest version."""
    headers = {"Version": "1.12.0"}
    answer = await catalog.call(caller, "GET", "winget/packageManifests", PACKAGE, headers=headers)
    assert answer.status == 200, answer.body
    check_manifest(answer.body["Data"], 12)
    installers: list[dict[str, Any]] = answer.body["Data"]["Versions"][0]["Installers"]
    return installers


async def test_the_address_and_the_digest_are_given_as_they_were_sent(catalog: Catalog, caller: Caller) -> None:
    uid = await add(catalog, caller, installer_sha256=DIGEST.upper())

    shown = await catalog.version(caller, uid)

    assert (shown["INSTALLER_URL"], shown["INSTALLER_SHA256"]) == (ADDRESS, DIGEST)
    assert await catalog.versions(caller, PACKAGE) == [shown]
    (installer,) = await shown_to_winget(catalog, caller)
    assert (installer["InstallerUrl"], installer["InstallerSha256"]) == (ADDRESS, DIGEST.upper())


async def test_nobody_is_asked_for_the_installer(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)

    assert catalog.stubs.operations == []


async def test_it_is_there_where_upload_service_is_away(catalog: Catalog) -> None:
    caller = await administrator(catalog, strict_installers=True)
    catalog.stubs.refusal = Unavailable("away")

    await add(catalog, caller)

    assert len(await catalog.versions(caller, PACKAGE)) == 1


async def test_details_tell_which_installers_stay_elsewhere(catalog: Catalog, caller: Caller) -> None:
    external, stored = await add(catalog, caller), await catalog.add_version(caller, PACKAGE, package_version="2.0")

    there, here = await details(catalog, caller, external), await details(catalog, caller, stored)

    assert (there["installer_url"], there["installer_sha256"], there["winget_refusals"]) == (ADDRESS, DIGEST, [])
    assert (here["installer_url"], here["installer_sha256"]) == ("", "")
    assert there.keys() == here.keys()


@pytest.mark.parametrize("field", ["package_version", "file_architect", "file_type", "file_scope"])
async def test_what_an_installer_here_would_say_has_to_be_said(catalog: Catalog, caller: Caller, field: str) -> None:
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
async def test_what_is_refused_leaves_nothing_behind(catalog: Catalog, caller: Caller, fields: dict[str, str]) -> None:
    answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, **fields})

    assert answer.status == 400
    assert await catalog.count_records(caller) == 1
    assert catalog.stubs.operations == []


async def test_wherever_its_installer_is_a_version_is_unique(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)
    await catalog.add_version(caller, PACKAGE, package_version="2.0")

    for taken in ("1.0", "2.0"):
        answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, "package_version": taken})
        assert (answer.status, answer.body["code"]) == (409, "version_exists")
    assert (await catalog.post_version(caller, PACKAGE)).status == 409


async def test_installers_here_and_elsewhere_stand_in_one_version(catalog: Catalog) -> None:
    caller = await administrator(catalog, version_key=VersionKey.INSTALLER)
    await add(catalog, caller)
    await catalog.add_version(caller, PACKAGE, file_architect="arm64")

    again = await catalog.post_version(
        caller, PACKAGE, **{**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}
    )

    assert (again.status, again.body["code"]) == (409, "version_exists")
    addresses = {one["Architecture"]: one["InstallerUrl"] for one in await shown_to_winget(catalog, caller)}
    assert addresses["x64"] == ADDRESS
    assert addresses["arm64"].startswith(f"{caller.base_url}/download/")


async def test_of_equal_requests_at_once_one_wins(catalog: Catalog, caller: Caller) -> None:
    answers = await asyncio.gather(*(catalog.post_version(caller, PACKAGE, **EXTERNAL) for _ in range(20)))

    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    assert len(await catalog.versions(caller, PACKAGE)) == 1


async def left_halfway(catalog: Catalog, caller: Caller) -> PendingVersion:
    """A version as a crash leaves it between the two steps of its creation."""
    form = Form({name: (value,) for name, value in version_form(**EXTERNAL).items()})
    package_uid = await catalog.store.packages.package_uid(caller.tenant_id, PACKAGE)
    pending = PendingVersion(caller.tenant_id, str(package_uid), new_version(form, PACKAGE))
    await catalog.store.versions.reserve(pending, pending.version.version)
    return pending


async def test_one_that_was_left_halfway_is_finished_without_a_hand(catalog: Catalog, caller: Caller) -> None:
    pending = await left_halfway(catalog, caller)
    assert await catalog.versions(caller, PACKAGE) == []

    await catalog.age_and_sweep()

    (shown,) = await catalog.versions(caller, PACKAGE)
    assert (shown["UID"], shown["INSTALLER_URL"]) == (pending.version.uid, ADDRESS)
    assert catalog.stubs.operations == []


async def test_the_same_request_finishes_one_that_was_left_halfway(catalog: Catalog, caller: Caller) -> None:
    pending = await left_halfway(catalog, caller)
    other = {**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}

    assert (await catalog.post_version(caller, PACKAGE, **other)).status == 409
    assert await add(catalog, caller) == pending.version.uid


@pytest.mark.parametrize("whole_package", [False, True])
async def test_it_is_deleted_like_any_other(catalog: Catalog, caller: Caller, whole_package: bool) -> None:
    uid, kept = await add(catalog, caller), await catalog.add_version(caller, PACKAGE, package_version="2.0")

    if whole_package:
        answer = await catalog.call(caller, "DELETE", "delete_package", PACKAGE)
    else:
        data = {"versions_uids": uid}
        answer = await catalog.call(caller, "DELETE", "delete_package_version", PACKAGE, data=data)

    assert answer.status == 200
    assert await catalog.count_records(caller) == (0 if whole_package else 2)
    assert catalog.stubs.linked_uids == (set() if whole_package else {kept})


async def test_versions_that_race_the_deletion_of_their_package_leave_nothing(catalog: Catalog, caller: Caller) -> None:
    async def delete() -> int:
        return (await catalog.call(caller, "DELETE", "delete_package", PACKAGE)).status

    async def make(number: int) -> int:
        return (await catalog.post_version(caller, PACKAGE, **EXTERNAL, package_version=str(number))).status

    results = await asyncio.gather(*(make(number) for number in range(20)), delete(), *(make(n) for n in range(20, 40)))

    assert results.pop(20) == 200
    assert set(results) <= {201, 404}
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 0


async def test_the_catalog_shows_it_at_once_and_not_to_another_tenant(catalog: Catalog, caller: Caller) -> None:
    stranger = make_caller()
    assert [package["VERSIONS"] for package in await catalog.packages(caller)] == [[]]

    uid = await add(catalog, caller)

    assert [package["VERSIONS_UID"] for package in await catalog.packages(caller)] == [[uid]]
    assert (await catalog.call(stranger, "GET", "get_specific_package_version", uid)).status == 404
    assert (await catalog.call(stranger, "GET", "get_version_details", uid)).status == 404


async def test_it_waits_for_nothing_and_nothing_of_it_is_damaged(catalog: Catalog, caller: Caller) -> None:
    await add(catalog, caller)

    assert (await catalog.call(caller, "GET", "get_finished_uploads")).body == []
    assert (await catalog.call(caller, "GET", "get_damaged_installers")).body == []
    assert await catalog.database["finished_uploads"].count_documents({"tenant_id": caller.tenant_id}) == 0


async def test_the_audit_names_the_host_and_no_secret_of_an_external_address(catalog: Catalog, caller: Caller) -> None:
    address = f"https://downloads.example.com:8443/{uuid4()}/editor.msi?token=secret"

    answer = await catalog.post_version(caller, PACKAGE, **{**EXTERNAL, "installer_url": address})

    assert answer.audit_target == {
        "package_id": PACKAGE,
        "version": "1.0",
        "installer_host": "downloads.example.com:8443",
        "sha256": DIGEST,
        "uid": answer.body["UID"],
    }
