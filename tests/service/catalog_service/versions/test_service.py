"""Package versions over HTTP (sections 2.2, 4.4, 4.5 and 9)."""

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID, uuid4

import pytest

from catalog_service.outgoing.upload_service import UploadService
from common.auth.downloads import check_download
from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.errors import Problem, StorageExceeded, Unavailable
from common.service_client.client import ServiceClient, open_service
from common.tenants import VersionKey
from tests.support.api import Answer
from tests.support.factories import KEYS, UNKNOWN_ID, make_caller, make_tenant
from tests.support.services.catalog import EXTERNAL, Catalog, serving_catalog, version_form
from tests.support.services.stand_ins import DIGEST
from tests.support.tables import each

GUID = "{0A1B2C3D-0000-4000-8000-00000000000F}"
# A version with the required fields only, without the values that differ each time.
VERSION = {
    "PACKAGE_ID": "acme.editor",
    "VERSION": "1.0",
    "LOCALE": "en-US",
    "ARCHITECTURE": "x64",
    "INSTALLER_TYPE": "MSI",
    "INSTALLER_URL": "",
    "INSTALLER_SHA256": DIGEST,
    "INSTALLER_SCOPE": "machine",
    "UID": "",
    "INSTALLER_NESTED_TYPE": "",
    "PRODUCTCODE": "",
    "UPGRADECODE": "",
    "PACKAGE_FAMILY_NAME": "",
    "CHANNEL": "stable",
    "NESTED_PACKAGE_INSTALLER_PATHS": [],
}


async def delete(catalog: Catalog, caller: Caller, *uids: str) -> Answer:
    data = {"versions_uids": ",".join(uids)}
    return await catalog.call(caller, "DELETE", "delete_package_version", "acme.editor", data=data)


def with_key(caller: Caller, version_key: VersionKey) -> Caller:
    """The same administrator after a change of the tenant's version key."""
    return make_caller(make_tenant(tenant_id=caller.tenant_id, version_key=version_key))


async def test_a_version_is_created_for_an_uploaded_file(catalog: Catalog, caller: Caller) -> None:
    data = version_form(server_filename=catalog.stubs.add_file())

    answer = await catalog.call(caller, "POST", "add_package_version", "acme.editor", data=data)

    assert answer.status == 201
    assert answer.body == {"Message": "Package version was added successfully!", "UID": answer.body["UID"]}
    assert str(UUID(answer.body["UID"])) == answer.body["UID"]
    assert catalog.stubs.linked_uids == {answer.body["UID"]}
    assert answer.audit_target == {"package_id": "acme.editor", "version": "1.0", "uid": answer.body["UID"]}


async def test_a_version_has_exactly_the_specified_fields_and_spelling(catalog: Catalog, caller: Caller) -> None:
    least = await catalog.add_version(caller)
    most = await catalog.add_version(
        caller,
        package_version="2.0-rc.1",
        file_architect="ARM64",
        file_type="zip",
        file_scope="USER",
        package_locale="zh-TW",
        channel="beta",
        file_type_nested="wix",
        file_nested_path="bin\\editor.msi",
        productcode=GUID,
        upgradecode=GUID,
        package_family_name="Acme.Editor_8wekyb3d8bbwe",
    )

    listed = await catalog.versions(caller)

    assert [list(version) for version in listed] == [list(VERSION)] * 2
    assert [version | {"INSTALLER_URL": ""} for version in listed] == [
        {
            **VERSION,
            "VERSION": "2.0-rc.1",
            "LOCALE": "zh_TW",
            "ARCHITECTURE": "arm64",
            "INSTALLER_TYPE": "ZIP",
            "INSTALLER_SCOPE": "user",
            "UID": most,
            "INSTALLER_NESTED_TYPE": "WIX",
            "PRODUCTCODE": GUID,
            "UPGRADECODE": GUID,
            "PACKAGE_FAMILY_NAME": "Acme.Editor_8wekyb3d8bbwe",
            "CHANNEL": "beta",
            "NESTED_PACKAGE_INSTALLER_PATHS": [{"RelativeFilePath": "bin\\editor.msi"}],
        },
        {**VERSION, "UID": least},
    ]
    assert (await catalog.version(caller, least.upper())).keys() == VERSION.keys()


async def test_installer_urls_can_bypass_the_gateway(mongo_url: str, redis_url: str) -> None:
    async with serving_catalog(mongo_url, redis_url, download_url="https://files.example.com") as catalog:
        caller = make_caller()
        await catalog.add_package(caller, "acme")
        uid = await catalog.add_version(caller, "acme")

        address = (await catalog.version(caller, uid))["INSTALLER_URL"]

    assert address.startswith(f"https://files.example.com/{caller.tenant_id}/download/")


async def test_the_installer_url_is_signed_and_expires(catalog: Catalog) -> None:
    caller = make_caller(base_url="https://packages.example.com/acme")
    await catalog.add_package(caller, "acme ö")
    uid = await catalog.add_version(caller, "acme ö", file_type="wix", package_version="1.0 b")

    before = time.time()
    url = urlsplit((await catalog.version(caller, uid))["INSTALLER_URL"])

    base, server_filename, file_name = unquote(url.path).rsplit("/", 2)
    assert (url.scheme, url.netloc, base) == ("https", "packages.example.com", "/acme/download")
    assert file_name == "acme--1.0-b.msi"
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert before - 10 < int(query["expires"]) - 3600 <= time.time()
    check_download(
        KEYS,
        tenant_id=caller.tenant_id,
        server_filename=server_filename,
        file_name=file_name,
        expires=query["expires"],
        signature=query["signature"],
        now=time.time(),
    )


async def test_without_a_file_nothing_is_created(catalog: Catalog, caller: Caller) -> None:
    answer = await catalog.call(caller, "POST", "add_package_version", "acme.editor", data=version_form())

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert "file" in answer.body["detail"]
    assert "server_filename" in answer.body["detail"]


@pytest.mark.parametrize(
    ("refusal", "fields", "answer"),
    [
        (None, {"server_filename": "unknown.msi"}, (404, "installer_not_found")),
        (StorageExceeded("The quota is full."), {}, (407, "storage_exceeded")),
    ],
    ids=["unknown file", "full quota"],
)
async def test_a_version_whose_file_is_refused_is_not_created(
    catalog: Catalog, caller: Caller, refusal: Problem | None, fields: dict[str, str], answer: tuple[int, str]
) -> None:
    catalog.stubs.refusal = refusal

    refused = await catalog.post_version(caller, **fields)

    assert (refused.status, refused.body["code"]) == answer
    assert await catalog.versions(caller) == []
    catalog.stubs.refusal = None
    await catalog.add_version(caller)


async def test_a_version_is_unique_within_its_package(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_version(caller)

    answer = await catalog.post_version(caller, file_architect="x86", channel="beta")

    assert (answer.status, answer.body["code"]) == (409, "version_exists")
    assert len(await catalog.versions(caller)) == 1


async def test_two_packages_and_two_tenants_may_have_one_version(catalog: Catalog, caller: Caller) -> None:
    other = make_caller()
    await catalog.add_package(caller, "acme.viewer")
    await catalog.add_package(other)

    for tenant, package_id in ((caller, "acme.editor"), (caller, "acme.viewer"), (other, "acme.editor")):
        await catalog.add_version(tenant, package_id)


async def test_a_tenant_may_require_unique_installers(catalog: Catalog) -> None:
    caller = make_caller(make_tenant(version_key=VersionKey.INSTALLER))
    await catalog.add_package(caller)
    uids = {await catalog.add_version(caller)}
    for different in (
        {"file_architect": "x86"},
        {"file_type": "exe"},
        {"file_type_nested": "msi"},
        {"file_scope": "user"},
        {"package_locale": "de-DE"},
        {"installer_locale": "sv-SE"},
        {"channel": "beta"},
    ):
        uids.add(await catalog.add_version(caller, **different))

    same_language = {"installer_locale": "SV-se", "package_locale": "de-DE"}
    for equal in ({"switch_Silent": "/quiet"}, {"installer_locale": "de-DE"}, same_language):
        answer = await catalog.post_version(caller, **equal)
        assert (answer.status, answer.body["code"]) == (409, "version_exists"), equal
    (package,) = await catalog.packages(caller)
    assert package["VERSIONS"] == ["1.0"] * 8
    assert set(package["VERSIONS_UID"]) == uids


async def test_versions_created_under_one_key_count_under_the_other(catalog: Catalog, caller: Caller) -> None:
    by_installer = with_key(caller, VersionKey.INSTALLER)
    await catalog.add_version(caller, package_version="1")
    await catalog.add_version(by_installer, package_version="2")

    assert (await catalog.post_version(by_installer, package_version="1")).status == 409
    assert (await catalog.post_version(caller, package_version="2", file_architect="x86")).status == 409
    await catalog.add_version(by_installer, package_version="1", file_architect="x86")


async def test_a_version_is_not_seen_before_it_has_its_file(catalog: Catalog, caller: Caller) -> None:
    versions_seen: list[object] = []

    async def list_versions() -> None:
        versions_seen.append(await catalog.versions(caller))
        versions_seen.append((await catalog.packages(caller))[0]["VERSIONS"])
        (uid,) = catalog.stubs.linked_uids
        versions_seen.append((await catalog.call(caller, "GET", "get_specific_package_version", uid)).status)

    catalog.stubs.during = list_versions
    await catalog.add_version(caller)

    assert versions_seen == [[], [], 404]


async def test_the_same_request_after_a_failure_continues(catalog: Catalog, caller: Caller) -> None:
    name = catalog.stubs.add_file()
    catalog.stubs.during = fail
    assert (await catalog.post_version(caller, server_filename=name)).status == 500
    assert await catalog.versions(caller) == []
    catalog.stubs.during = None

    answer = await catalog.post_version(caller, server_filename=name)

    assert answer.status == 201
    assert catalog.stubs.links == {name: answer.body["UID"]}
    assert answer.audit_target["uid"] == answer.body["UID"]


async def test_the_same_request_continues_if_the_file_is_only_now_inspected(catalog: Catalog, caller: Caller) -> None:
    name = catalog.stubs.add_file()
    catalog.stubs.not_inspected = catalog.stubs.refusal = Unavailable("away")
    assert (await catalog.post_version(caller, server_filename=name)).status == 500
    catalog.stubs.not_inspected = catalog.stubs.refusal = None
    catalog.stubs.inspected, catalog.stubs.claim_fields = {"productcode": GUID}, {"product_code": GUID}

    answer = await catalog.post_version(caller, server_filename=name)

    assert answer.status == 201, answer.body
    assert [version["PRODUCTCODE"] for version in await catalog.versions(caller)] == [GUID]


async def test_another_request_after_a_failure_does_not_replace_it(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = Unavailable("away")
    name = catalog.stubs.add_file()
    await catalog.post_version(caller, server_filename=name)
    catalog.stubs.refusal = None

    assert (await catalog.post_version(caller)).status == 409
    assert (await catalog.post_version(caller, server_filename=name, switch_Silent="/quiet")).status == 409


async def test_a_pending_version_is_finished_by_the_sweeper(catalog: Catalog, caller: Caller) -> None:
    name = catalog.stubs.add_file()
    catalog.stubs.during = fail
    await catalog.post_version(caller, server_filename=name)
    catalog.stubs.during = None
    assert await catalog.versions(caller) == []  # kept in a cache

    await catalog.age_and_sweep()

    (version,) = await catalog.versions(caller)
    assert (await catalog.packages(caller))[0]["VERSIONS"] == ["1.0"]
    assert catalog.stubs.links == {name: version["UID"]}
    assert version["INSTALLER_SHA256"] == DIGEST


async def test_the_sweeper_gives_no_restricted_token_the_file_of_others(catalog: Catalog, caller: Caller) -> None:
    token = caller.as_administrator("token:ci", "", (Role.PUBLISHER,), ("acme.*",))
    name = catalog.stubs.add_file()
    catalog.stubs.others = {name}
    catalog.stubs.during = fail

    answer = await catalog.post_version(token, server_filename=name)

    assert (answer.status, answer.body["code"]) == (403, "permission_missing")
    catalog.stubs.during = None
    await catalog.age_and_sweep()
    assert await catalog.versions(caller) == []
    assert catalog.stubs.linked_uids == set()


async def test_only_a_restricted_token_has_its_files_checked_first(catalog: Catalog, caller: Caller) -> None:
    for packages, expected in ((("acme.*",), 1), (("*",), 0)):
        catalog.stubs.requests.clear()
        token = caller.as_administrator("token:ci", "", (Role.PUBLISHER,), packages)
        assert (await catalog.post_version(token, package_version=f"2.{expected}")).status == 201
        assert (await catalog.post_version(token, package_version=f"3.{expected}", **EXTERNAL)).status == 201
        assert catalog.stubs.operations.count("inspect_upload") == expected


async def test_a_pending_version_without_a_file_is_removed(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = Unavailable("away")
    await catalog.post_version(caller, server_filename="gone.msi")
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 2
    catalog.stubs.refusal = None

    await catalog.age_and_sweep()

    assert await catalog.count_records(caller) == 1
    await catalog.add_version(caller)


async def test_a_version_during_its_creation_is_not_swept(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = Unavailable("away")
    await catalog.post_version(caller)
    catalog.stubs.refusal = None

    await catalog.sweep()

    assert await catalog.versions(caller) == []
    assert await catalog.count_records(caller) == 2


async def test_a_request_overtaken_by_the_sweeper_adds_no_second_version(catalog: Catalog, caller: Caller) -> None:
    async def overtake() -> None:
        catalog.stubs.during = None
        await catalog.age_and_sweep()

    catalog.stubs.during = overtake

    answer = await catalog.post_version(caller)

    assert answer.status == 409
    (version,) = await catalog.versions(caller)
    assert catalog.stubs.linked_uids == {version["UID"]}


async def test_a_package_deleted_meanwhile_removes_the_new_version(catalog: Catalog, caller: Caller) -> None:
    async def delete() -> None:
        assert (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status == 200

    catalog.stubs.during = delete

    answer = await catalog.post_version(caller)

    assert (answer.status, answer.body["code"]) == (404, "package_not_found")
    assert catalog.stubs.linked_uids == set()
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 0


async def test_a_package_added_again_meanwhile_does_not_get_the_old_version(catalog: Catalog, caller: Caller) -> None:
    async def replace() -> None:
        catalog.stubs.during = None
        await catalog.call(caller, "DELETE", "delete_package", "acme.editor")
        await catalog.add_package(caller)
        await catalog.add_version(caller)

    catalog.stubs.during = replace

    answer = await catalog.post_version(caller, switch_Silent="/old")

    assert answer.status == 404
    (version,) = await catalog.versions(caller)
    assert catalog.stubs.linked_uids == {version["UID"]}


@pytest.mark.parametrize("installer", [{}, EXTERNAL], ids=["stored", "external"])
async def test_versions_racing_the_deletion_of_their_package_leave_no_data(
    catalog: Catalog, caller: Caller, installer: dict[str, str]
) -> None:
    async def delete_package() -> int:
        return (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status

    async def add(number: int) -> int:
        return (await catalog.post_version(caller, **installer, package_version=str(number))).status

    additions = [add(number) for number in range(30)]
    results = await asyncio.gather(*additions[:15], delete_package(), *additions[15:])

    assert results.pop(15) == 200
    assert set(results) <= {201, 404}
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 0
    assert catalog.stubs.linked_uids == set()


@pytest.mark.parametrize("installer", [{"server_filename": "a.msi"}, EXTERNAL], ids=["stored", "external"])
async def test_a_package_deleted_before_the_claim_removes_the_version(
    catalog: Catalog, caller: Caller, installer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [None, await catalog.store.versions.package_uid(caller.tenant_id, "acme.editor")]  # The last comes first.

    async def package_uid(*_: str) -> str | None:
        return found.pop()

    monkeypatch.setattr(catalog.store.versions, "package_uid", package_uid)

    answer = await catalog.post_version(caller, **installer)

    assert (answer.status, answer.body["code"]) == (404, "package_not_found")
    assert "claim_installer" not in catalog.stubs.operations
    assert await catalog.count_records(caller) == 1


async def test_a_file_claimed_for_a_deleted_package_is_released(catalog: Catalog, caller: Caller) -> None:
    name = catalog.stubs.add_file()
    catalog.stubs.during = fail
    await catalog.post_version(caller, server_filename=name)
    (uid,) = catalog.stubs.linked_uids
    await catalog.call(caller, "DELETE", "delete_package", "acme.editor")
    catalog.stubs.links[name] = uid  # like a claim after the deletion and then a crash

    await catalog.age_and_sweep()

    assert catalog.stubs.linked_uids == set()
    assert await catalog.count_records(caller) == 0


@each("uid", [UNKNOWN_ID, "1", "x" * 300, "a/b", "\0"])
async def test_an_unknown_uid_is_answered_404(catalog: Catalog, uid: str) -> None:
    answer = await catalog.call(make_caller(), "GET", "get_specific_package_version", uid)

    assert (answer.status, answer.body["code"]) == (404, "version_not_found")


async def test_only_the_listed_versions_are_deleted(catalog: Catalog, caller: Caller) -> None:
    *uids, kept_uid = [await catalog.add_version(caller, package_version=str(number)) for number in range(3)]

    answer = await delete(catalog, caller, *uids)

    assert (answer.status, answer.body) == (200, {"Message": "Package versions deleted successfully!"})
    assert answer.audit_target == {"package_id": "acme.editor", "uids": ",".join(uids)}
    assert [version["UID"] for version in await catalog.versions(caller)] == [kept_uid]
    assert catalog.stubs.linked_uids == {kept_uid}


async def test_a_uid_of_no_version_of_the_package_deletes_nothing(catalog: Catalog, caller: Caller) -> None:
    uid, other_tenant = await catalog.add_version(caller), make_caller()
    for owner, package_id in ((caller, "acme.viewer"), (other_tenant, "acme.editor")):
        await catalog.add_package(owner, package_id)
    foreign = await catalog.add_version(caller, "acme.viewer"), await catalog.add_version(other_tenant)

    for other in (*foreign, str(uuid4()), "x"):
        answer = await delete(catalog, caller, uid, other)
        assert (answer.status, answer.body["code"]) == (404, "version_not_found")

    assert [version["UID"] for version in await catalog.versions(caller)] == [uid]
    assert catalog.stubs.linked_uids == {uid, *foreign}


async def test_a_version_whose_file_cannot_be_removed_yet_is_hidden_at_once(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")

    assert (await delete(catalog, caller, uid)).status == 500

    catalog.stubs.refusal = None
    assert await catalog.versions(caller) == []
    assert (await catalog.packages(caller))[0]["VERSIONS"] == []
    await catalog.add_version(caller)
    assert (await delete(catalog, caller, uid)).status == 200
    assert uid not in catalog.stubs.linked_uids
    assert len(await catalog.versions(caller)) == 1


async def test_an_interrupted_deletion_of_versions_finishes_by_itself(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")
    await delete(catalog, caller, uid)
    catalog.stubs.refusal = None

    await catalog.age_and_sweep()

    assert catalog.stubs.linked_uids == set()
    assert await catalog.count_records(caller) == 1


async def test_many_files_are_removed_in_batches_with_a_long_timeout(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[list[str], float]] = []

    async def ask(
        _: ServiceClient, caller: Caller, operation: str, body: dict[str, list[str]], *, timeout: float
    ) -> None:
        requests.append((body["version_uids"], timeout))

    monkeypatch.setattr(ServiceClient, "json", ask)
    uids = [str(number) for number in range(950)]
    async with open_service(catalog.api.address, service="upload_service", keys=KEYS) as client:
        await UploadService(client).release(caller, uids)

    assert sorted(uid for slice_, _ in requests for uid in slice_) == sorted(uids)
    assert max(len(slice_) for slice_, _ in requests) == 100
    assert {timeout for _, timeout in requests} == {25}


async def test_an_unfinished_deletion_does_not_block_others(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = [await catalog.add_version(caller, package_version=text) for text in ("1", "2")]
    catalog.stubs.refusal = Unavailable("away")
    await delete(catalog, caller, stuck, other)
    catalog.stubs.refusal = None
    release = UploadService.release

    async def confused(service: UploadService, caller: Caller, version_uids: Sequence[str]) -> None:
        if stuck in version_uids:
            raise ValueError
        await release(service, caller, version_uids)

    monkeypatch.setattr(UploadService, "release", confused)
    await catalog.age_and_sweep()

    assert catalog.stubs.linked_uids == {stuck}


async def test_the_audit_target_of_a_long_deletion_fits_a_header(catalog: Catalog, caller: Caller) -> None:
    uids = await asyncio.gather(*(catalog.add_version(caller, package_version=str(number)) for number in range(102)))

    answer = await delete(catalog, caller, *uids)

    assert await catalog.versions(caller) == []
    assert answer.audit_target["uids"] == ",".join(uids)


async def fail() -> None:
    """Raise an error after upload_service has done the work."""
    raise Unavailable("away")
