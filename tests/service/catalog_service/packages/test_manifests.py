"""The winget manifest fields of packages and versions, over HTTP."""

import json
from typing import Any

import pytest
from aiohttp import FormData

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.http.middleware import AUDIT_HEADER
from common.service_client.client import HEADER_LIMIT
from common.tenants import VersionKey
from tests.support.factories import make_caller, make_tenant
from tests.support.samples.sample_forms import PACKAGE, PORTABLE, VERSION, form_of
from tests.support.services.catalog import Catalog, version_form
from tests.support.tables import each

NESTED = {"file_nested_path": ["a.exe", "b.exe"]}


def encoded(fields: dict[str, Any], *, multipart: bool = False) -> FormData:
    form = FormData(default_to_multipart=multipart)
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            form.add_field(name, item)
    return form


async def edit(catalog: Catalog, caller: Caller, **fields: Any) -> dict[str, list[str]]:
    """The audit changes of an edit of acme.editor, before and after."""
    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=encoded(fields))
    assert answer.status == 200, answer.body
    changes: dict[str, list[str]] = json.loads(answer.headers[AUDIT_HEADER])["changes"]
    return changes


async def details(catalog: Catalog, caller: Caller) -> dict[str, Any]:
    """All manifest fields of the package acme.editor."""
    answer = await catalog.call(caller, "GET", "get_package_details", "acme.editor")
    assert answer.status == 200, answer.body
    package: dict[str, Any] = answer.body
    return package


async def version_details(catalog: Catalog, caller: Caller, uid: str) -> dict[str, Any]:
    answer = await catalog.call(caller, "GET", "get_version_details", uid)
    assert answer.status == 200, answer.body
    version: dict[str, Any] = answer.body
    return version


async def shown(catalog: Catalog, caller: Caller) -> list[dict[str, Any]]:
    """The versions of acme.editor without their addresses, which have the time of the answer."""
    return [{**version, "INSTALLER_URL": ""} for version in await catalog.versions(caller)]


@pytest.mark.parametrize("multipart", [True, False])
async def test_all_fields_of_a_package_are_returned(catalog: Catalog, multipart: bool) -> None:
    caller = make_caller()
    fields_sent = {
        "package_id": "acme.editor",
        "package_name": "Editor",
        "package_publisher": "Acme",
        "package_description": "Edits\ntext.",
    }

    form = encoded({**fields_sent, **form_of(PACKAGE)}, multipart=multipart)
    answer = await catalog.call(caller, "POST", "add_package", data=form)

    assert answer.status == 200, answer.body
    returned = await details(catalog, caller)
    assert returned.pop("revision")
    assert returned == {**fields_sent, "package_active": "1", "package_logo": "", **PACKAGE}


@pytest.mark.parametrize("multipart", [True, False])
async def test_all_fields_of_a_version_are_returned(catalog: Catalog, caller: Caller, multipart: bool) -> None:
    fields_sent = {
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

    form = encoded({**fields_sent, **form_of(VERSION), **file}, multipart=multipart)
    answer = await catalog.call(caller, "POST", "add_package_version", "acme.editor", data=form)

    assert answer.status == 201, answer.body
    uid = answer.body["UID"]
    returned = await version_details(catalog, caller, uid)
    own_fields = {"installer_url": "", "installer_sha256": "", "winget_refusals": [], "shared_identities": []}
    assert returned.pop("published_at")
    assert returned.pop("revision")
    file_fields = {"size": 4096, "published_by": caller.username}
    assert returned == {"uid": uid, "package_id": "acme.editor", **fields_sent, **VERSION, **own_fields, **file_fields}


async def test_an_edit_keeps_absent_fields_and_removes_empty_ones(catalog: Catalog, caller: Caller) -> None:
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


async def test_an_edit_of_every_field_is_in_the_audit_log(catalog: Catalog, caller: Caller) -> None:
    url = "https://a.example/"
    fields = {name: url + "\U0001f9f0" * (255 - len(url)) for name in PACKAGE if name.endswith("_url")}
    fields |= dict.fromkeys(("author", "license", "copyright", "short_description"), "\U0001f9f0" * 256)

    await edit(catalog, caller, **fields)
    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=encoded(fields))

    assert answer.status == 200
    assert len(answer.headers[AUDIT_HEADER]) < HEADER_LIMIT
    assert json.loads(answer.headers[AUDIT_HEADER])["changes"].keys() == fields.keys()


async def test_records_older_than_manifests_are_read_unchanged(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)
    new = await version_details(catalog, caller, uid), await details(catalog, caller), await shown(catalog, caller)
    for name in ("packages", "versions"):
        await catalog.database[name].update_many({"tenant_id": caller.tenant_id}, {"$unset": {"manifest": ""}})

    old = await version_details(catalog, caller, uid), await details(catalog, caller), await shown(catalog, caller)

    assert old == new
    await edit(catalog, caller, moniker="editor")
    assert (await details(catalog, caller))["moniker"] == "editor"


@each(
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
async def test_an_invalid_edit_is_refused_and_changes_nothing(
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


async def test_a_version_with_invalid_fields_is_not_created(catalog: Catalog, caller: Caller) -> None:
    answer = await catalog.post_version(caller, allowed_markets="DE", excluded_markets="US")

    detail = "excluded_markets: is not for a version that has allowed_markets"
    assert (answer.status, answer.body["detail"]) == (400, detail)
    assert await catalog.versions(caller) == []
    assert catalog.stubs.operations == []


async def test_the_reasons_of_a_version_hidden_from_winget_are_listed(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller, file_type="ZIP")

    refusals = (await version_details(catalog, caller, uid))["winget_refusals"]
    assert [refusal["code"] for refusal in refusals] == ["nested_type_required", "nested_path_required"]


@pytest.mark.parametrize("channel", ["stable", "beta"])
async def test_indistinguishable_installers_of_a_channel_are_reported(catalog: Catalog, channel: str) -> None:
    caller = make_caller(make_tenant(version_key=VersionKey.INSTALLER))
    await catalog.add_package(caller)
    # Nested files distinguish archives for the server; other types ignore them.
    uids = [
        await catalog.add_version(caller),
        await catalog.add_version(caller, file_type_nested="WIX", channel=channel),
        await catalog.add_version(caller, package_locale="de-DE"),
    ]

    refused = [(await version_details(catalog, caller, uid))["winget_refusals"] for uid in uids]

    assert len([reasons for reasons in refused if reasons]) == (1 if channel == "stable" else 0)


async def test_an_interrupted_version_continues_with_equal_fields_only(catalog: Catalog, caller: Caller) -> None:
    fields_sent = {"server_filename": catalog.stubs.add_file(), "release_notes": "Faster.", "commands": "edit"}
    catalog.stubs.refusal = Unavailable("away")
    await catalog.post_version(caller, **fields_sent)
    catalog.stubs.refusal = None

    assert (await catalog.post_version(caller, **{**fields_sent, "commands": "editor"})).status == 409
    assert (await catalog.post_version(caller, **{**fields_sent, "commands": ""})).status == 409
    assert (await catalog.post_version(caller, **fields_sent)).status == 201
