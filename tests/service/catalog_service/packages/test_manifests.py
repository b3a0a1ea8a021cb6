"""What winget shows of packages and versions, through catalog_service's own door."""

import json
from typing import Any

import pytest
from aiohttp import FormData

from common.auth.callers import Caller
from common.errors import Unavailable
from common.http.middleware import AUDIT_HEADER
from common.service_client.client import HEADER_LIMIT
from common.tenants import VersionKey
from tests.support.factories import make_caller, make_tenant
from tests.support.samples.sample_forms import PACKAGE, PORTABLE, VERSION, form_of
from tests.support.services.catalog import Catalog, version_form

NESTED = {"file_nested_path": ["a.exe", "b.exe"]}


def encoded(fields: dict[str, Any], *, multipart: bool = False) -> FormData:
    form = FormData(default_to_multipart=multipart)
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            form.add_field(name, one)
    return form


async def edit(catalog: Catalog, caller: Caller, **fields: Any) -> dict[str, list[str]]:
    """What an edit of acme.editor says that was before and is after."""
    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=encoded(fields))
    assert answer.status == 200, answer.body
    changes: dict[str, list[str]] = json.loads(answer.headers[AUDIT_HEADER])["changes"]
    return changes


async def details(catalog: Catalog, caller: Caller) -> dict[str, Any]:
    """All that the package acme.editor says of itself."""
    answer = await catalog.call(caller, "GET", "get_package_details", "acme.editor")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


async def version_details(catalog: Catalog, caller: Caller, uid: str) -> dict[str, Any]:
    answer = await catalog.call(caller, "GET", "get_version_details", uid)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


@pytest.mark.parametrize("multipart", [True, False])
async def test_all_that_a_package_says_is_shown_again(catalog: Catalog, multipart: bool) -> None:
    caller = make_caller()
    said = {
        "package_id": "acme.editor",
        "package_name": "Editor",
        "package_publisher": "Acme",
        "package_description": "Edits\ntext.",
    }

    form = encoded({**said, **form_of(PACKAGE)}, multipart=multipart)
    answer = await catalog.call(caller, "POST", "add_package", data=form)

    assert answer.status == 200, answer.body
    assert await details(catalog, caller) == {**said, "package_active": "1", "package_logo": "", **PACKAGE}


@pytest.mark.parametrize("multipart", [True, False])
async def test_all_that_a_version_says_is_shown_again(catalog: Catalog, caller: Caller, multipart: bool) -> None:
    said = {
        **version_form(**PORTABLE),
        **NESTED,
        "package_locale": "de-AT",
        "channel": "beta",
        **{f"switch_{name}": f"/{name}" for name in ("Silent", "SilentWithProgress", "Interactive", "InstallLocation")},
        **{f"switch_{name}": f"/{name}" for name in ("Log", "Upgrade", "Custom", "Repair")},
        "productcode": "{0A1B2C3D-0000-4000-8000-00000000000F}",
        "upgradecode": "{0A1B2C3D-0000-4000-8000-00000000000E}",
        "package_family_name": "Acme.Editor_8wekyb3d8bbwe",
        "upgrades": "deny",
        "dep_windows_features": ["NetFx3"],
        "dep_windows_libraries": ["Microsoft.VCLibs"],
        "dep_external": ["A licence"],
        "dep_pkg_identifier": ["acme.runtime", "acme.fonts"],
        "dep_pkg_min_version": ["2", ""],
    }
    file = {"server_filename": catalog.stubs.add_file()}

    form = encoded({**said, **form_of(VERSION), **file}, multipart=multipart)
    answer = await catalog.call(caller, "POST", "add_package_version", "acme.editor", data=form)

    assert answer.status == 201, answer.body
    uid = answer.body["UID"]
    shown = await version_details(catalog, caller, uid)
    here = {"installer_url": "", "installer_sha256": "", "winget_refusals": []}
    assert shown == {"uid": uid, "package_id": "acme.editor", **said, **VERSION, **here}


async def test_the_specified_answers_have_exactly_their_fields_all_the_same(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_version(caller, release_notes="Faster.", commands="edit")
    before = await catalog.packages(caller), (await catalog.versions(caller))[0].keys()

    await edit(catalog, caller, **form_of(PACKAGE))

    assert (await catalog.packages(caller), (await catalog.versions(caller))[0].keys()) == before


async def test_the_catalog_reads_nothing_of_what_it_does_not_show(catalog: Catalog, caller: Caller) -> None:
    await edit(catalog, caller, license="MIT")

    async with catalog.queries() as asked:
        await catalog.packages(caller)

    (packages,) = [one["command"] for one in asked if one["command"].get("find") == "packages"]
    assert packages["projection"] == {"manifest": False}


async def test_an_edit_keeps_what_it_does_not_name_and_takes_away_what_is_empty(
    catalog: Catalog, caller: Caller
) -> None:
    await edit(catalog, caller, **form_of(PACKAGE))

    changes = await edit(catalog, caller, license="Apache-2.0", moniker="", tags="", locales="", author="Bob")

    assert await details(catalog, caller) == {
        **await details(catalog, caller),
        **PACKAGE,
        "license": "Apache-2.0",
        "moniker": "",
        "tags": [],
        "locales": [],
        "author": "Bob",
    }
    assert changes["license"] == ["MIT", "Apache-2.0"]
    assert changes["moniker"] == ["editor", ""]
    assert changes["tags"] == [json.dumps(PACKAGE["tags"]), ""]
    assert changes["locales"][0].startswith("sha256:")
    assert changes.keys() == {"license", "moniker", "tags", "locales", "author"}


async def test_two_edits_of_different_fields_at_once_are_both_kept(catalog: Catalog, caller: Caller) -> None:
    await edit(catalog, caller, license="MIT")
    await edit(catalog, caller, package_name="Text Editor", moniker="editor")

    found = await details(catalog, caller)

    assert (found["license"], found["moniker"], found["package_name"]) == ("MIT", "editor", "Text Editor")


async def test_an_edit_of_every_field_is_in_the_audit_log(catalog: Catalog, caller: Caller) -> None:
    url = "https://a.example/"
    fields = {name: url + "\U0001f9f0" * (255 - len(url)) for name in PACKAGE if name.endswith("_url")}
    fields |= dict.fromkeys(("author", "license", "copyright", "short_description"), "\U0001f9f0" * 256)

    await edit(catalog, caller, **fields)
    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=encoded(fields))

    assert answer.status == 200
    assert len(answer.headers[AUDIT_HEADER]) < HEADER_LIMIT
    assert json.loads(answer.headers[AUDIT_HEADER])["changes"].keys() == fields.keys()


async def test_what_was_there_before_there_were_manifests_is_read_as_it_was(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    new = await version_details(catalog, caller, uid), await details(catalog, caller), await catalog.versions(caller)
    for name in ("packages", "versions"):
        await catalog.database[name].update_many({"tenant_id": caller.tenant_id}, {"$unset": {"manifest": ""}})

    old = await version_details(catalog, caller, uid), await details(catalog, caller), await catalog.versions(caller)

    assert old == new
    await edit(catalog, caller, moniker="editor")
    assert (await details(catalog, caller))["moniker"] == "editor"


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("tags", ",".join(map(str, range(10_000)))),
        ("moniker", "a\0b"),
        ("license", "x" * 900_000),
        ("locales", "[" * 10_000),
        ("locales", json.dumps([{"package_locale": "de", "license": "a\ud800b"}])),
        ("locales", json.dumps([{"package_locale": "de", "license": "x" * 900_000}])),
        ("locales", json.dumps([{"package_locale": "de"}] * 20_000)),
        ("agreements", '[{"agreement": "a\\u0000b"}]'),
        ("agreements", '[{"agreement": "$where", "$where": "1"}]'),
    ],
    ids=lambda value: value[:30],
)
async def test_what_cannot_be_is_refused_and_nothing_is_written(
    catalog: Catalog, caller: Caller, field: str, sent: str
) -> None:
    form = {"package_id": "acme.viewer", "package_name": "Viewer", "package_publisher": "Acme", field: sent}

    added = await catalog.call(caller, "POST", "add_package", data=form)
    edited = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data={field: sent})

    for answer in (added, edited):
        assert (answer.status, answer.body["code"]) == (400, "invalid_field")
        assert answer.body["detail"].startswith(field)
        assert len(answer.body["detail"]) < 400
    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["acme.editor"]
    assert not (await details(catalog, caller))[field]


async def test_a_version_that_says_what_cannot_be_is_not_created(catalog: Catalog, caller: Caller) -> None:
    answer = await catalog.post_version(caller, allowed_markets="DE", excluded_markets="US")

    assert (answer.status, answer.body["detail"]) == (
        400,
        "excluded_markets: is not for a version that has allowed_markets",
    )
    assert await catalog.versions(caller) == []
    assert catalog.stubs.operations == []


async def test_why_a_version_is_not_offered_to_winget_clients_can_be_read(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller, file_type="ZIP")

    assert (await version_details(catalog, caller, uid))["winget_refusals"] == [
        "file_type_nested: is required with ZIP, and not ZIP",
        "file_nested_path: is required with ZIP",
    ]


@pytest.mark.parametrize("channel", ["stable", "beta"])
async def test_indistinguishable_installers_are_reported_within_a_channel(catalog: Catalog, channel: str) -> None:
    caller = make_caller(make_tenant(version_key=VersionKey.INSTALLER))
    await catalog.add_package(caller)
    # What is nested in them tells them apart for us, and says nothing of what is no archive.
    uids = [
        await catalog.add_version(caller),
        await catalog.add_version(caller, file_type_nested="WIX", channel=channel),
        await catalog.add_version(caller, package_locale="de-DE"),
    ]

    refused = [(await version_details(catalog, caller, uid))["winget_refusals"] for uid in uids]

    assert len([reasons for reasons in refused if reasons]) == (1 if channel == "stable" else 0)


async def test_an_installer_of_the_same_language_is_there_already(catalog: Catalog) -> None:
    caller = make_caller(make_tenant(version_key=VersionKey.INSTALLER))
    await catalog.add_package(caller)
    await catalog.add_version(caller, package_locale="ko-KR")
    await catalog.add_version(caller, installer_locale="sv-SE")

    assert (await catalog.post_version(caller, installer_locale="ko-KR")).status == 409
    assert (await catalog.post_version(caller, installer_locale="SV-se", package_locale="de-DE")).status == 409
    await catalog.add_version(caller, package_locale="de-DE")


async def test_a_version_that_ended_halfway_goes_on_only_where_it_says_the_same(
    catalog: Catalog, caller: Caller
) -> None:
    said = {"server_filename": catalog.stubs.add_file(), "release_notes": "Faster.", "commands": "edit"}
    catalog.stubs.refusal = Unavailable("away")
    await catalog.post_version(caller, **said)
    catalog.stubs.refusal = None

    assert (await catalog.post_version(caller, **{**said, "commands": "editor"})).status == 409
    assert (await catalog.post_version(caller, **{**said, "commands": ""})).status == 409
    assert (await catalog.post_version(caller, **said)).status == 201


async def test_details_are_of_this_tenant_s_things_only(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    stranger = make_caller()

    package = await catalog.call(stranger, "GET", "get_package_details", "acme.editor")
    version = await catalog.call(stranger, "GET", "get_version_details", uid)

    assert (package.status, package.body["code"]) == (404, "package_not_found")
    assert (version.status, version.body["code"]) == (404, "version_not_found")


async def test_what_is_being_deleted_has_no_details(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    await catalog.store.packages.begin_deletion(caller.tenant_id, "acme.editor")

    assert (await catalog.call(caller, "GET", "get_package_details", "acme.editor")).status == 404
    assert (await catalog.call(caller, "GET", "get_version_details", uid)).status == 404
