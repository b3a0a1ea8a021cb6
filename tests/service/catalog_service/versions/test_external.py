"""Versions with external installers, over HTTP."""

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
    stored = await catalog.add_version(caller, PACKAGE, package_version="0.9")

    version = await catalog.version(caller, uid)

    assert (version["INSTALLER_URL"], version["INSTALLER_SHA256"]) == (ADDRESS, DIGEST)
    external, other = [(await catalog.call(caller, "GET", "get_version_details", each)).body for each in (uid, stored)]
    assert (external["installer_url"], external["installer_sha256"], external["winget_refusals"]) == (
        ADDRESS,
        DIGEST,
        [],
    )
    assert (other["installer_url"], other["installer_sha256"]) == ("", "")
    assert external.keys() == other.keys()
    (installer,) = await shown_to_winget(catalog, caller)
    assert (installer["InstallerUrl"], installer["InstallerSha256"]) == (ADDRESS, DIGEST.upper())


async def test_an_external_version_needs_no_upload_service(catalog: Catalog) -> None:
    caller = await administrator(catalog, strict_installers=True)
    catalog.stubs.refusal = Unavailable("away")

    await add(catalog, caller)

    assert len(await catalog.versions(caller, PACKAGE)) == 1
    assert catalog.stubs.operations == []


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


async def test_stored_and_external_installers_share_one_version(catalog: Catalog) -> None:
    caller = await administrator(catalog, version_key=VersionKey.INSTALLER)
    await add(catalog, caller)
    await catalog.add_version(caller, PACKAGE, file_architect="arm64")

    for again in ({**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}, {}):
        answer = await catalog.post_version(caller, PACKAGE, **again)
        assert (answer.status, answer.body["code"]) == (409, "version_exists")

    installers = await shown_to_winget(catalog, caller)
    addresses = {installer["Architecture"]: installer["InstallerUrl"] for installer in installers}
    assert addresses["x64"] == ADDRESS
    assert addresses["arm64"].startswith(f"{caller.base_url}/download/")


@pytest.mark.parametrize("repeated", [True, False])
async def test_an_interrupted_creation_is_finished(catalog: Catalog, caller: Caller, repeated: bool) -> None:
    """By the same request or by the sweeper, after a crash between the two steps."""
    form = Form({name: (value,) for name, value in version_form(**EXTERNAL).items()})
    package_uid = await catalog.store.versions.package_uid(caller.tenant_id, PACKAGE)
    pending = PendingVersion(caller.tenant_id, str(package_uid), new_version(form, PACKAGE))
    await catalog.store.versions.reserve(pending, pending.version.version)
    assert await catalog.versions(caller, PACKAGE) == []

    if repeated:
        other = {**EXTERNAL, "installer_url": "https://mirror.example.com/editor.msi"}
        assert (await catalog.post_version(caller, PACKAGE, **other)).status == 409
        await add(catalog, caller)
    else:
        await catalog.age_and_sweep()

    (version,) = await catalog.versions(caller, PACKAGE)
    assert (version["UID"], version["INSTALLER_URL"]) == (pending.version.uid, ADDRESS)
    assert catalog.stubs.operations == []


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
