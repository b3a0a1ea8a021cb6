"""A tenant that used every feature moves with all that it has."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData

from common.auth.roles import Role
from deploy.operator.tenants import delete_tenant
from tests.support.faults.invariants import missing_versions, violations
from tests.support.processes.backup import addresses_of, export_tenant, import_archive
from tests.support.processes.cluster import Cluster
from tests.support.services.catalog import EXTERNAL, picture
from tests.support.system.publishing import INSTALLER, Published, publish, publish_in_one_call, send_chunk, upload
from tests.support.system.services import PASSWORD, Api, bearer

pytestmark = pytest.mark.full

CODE = "{1294A4C5-9977-480F-9497-C0EA1E630130}"
POLICY = {
    "rings": "pilot,broad,everyone",
    "ring_rules": [{"network": "10.1.0.0/16", "ring": "pilot"}, {"app_role": "Pilot", "ring": "pilot"}],
    "gates": {"broad": {"approvals": 1}, "everyone": {"approvals": 2, "age_days": 2}},
    "retention": [{"packages": "Acme.*", "keep_versions": 5}],
}
FIELDS: dict[str, Any] = {
    "productcode": CODE,
    "upgradecode": CODE.replace("1294", "1295"),
    "package_family_name": "Acme.Editor_8wekyb3d8bbwe",
    "apps_and_features_entries": json.dumps([{"display_name": "Editor 2.1", "product_code": "Editor_is1"}]),
    "switch_Silent": "/S",
    "upgrades": "uninstallPrevious",
    "dep_pkg_identifier": "Acme.Runtime",
    "dep_pkg_min_version": "2",
    "dep_windows_features": "NetFx3",
    "dep_external": "A licence",
    "release_notes": "New.\nFast.",
    "locales": json.dumps([{"package_locale": "de-DE", "release_notes": "Neu."}]),
    "desired_state_configuration": json.dumps({"dscv3": {"resources": [{"type": "Acme/Editor"}]}}),
}


async def done(api: Api, method: str, *path: str, **request: Any) -> Any:
    answer = await api.call(method, *path, **request)
    assert answer.status in {200, 201}, (path, answer.body)
    return answer.body


async def user(cluster: Cluster, api: Api, name: str, role: Role) -> Api:
    await cluster.services.operator.users.create(api.tenant_id, name, PASSWORD, (role,))
    return await api.signed_in(name)


async def token(api: Api, name: str, **fields: str) -> Api:
    created = await done(api, "POST", "add_token", data={"name": name, **fields})
    return Api(api.session, api.base_url, api.tenant_id, api.deployment, bearer(created["token"]))


async def add_packages(api: Api) -> None:
    texts = json.dumps([{"package_locale": "de-DE", "package_name": "Übersetzer", "license": "frei"}])
    packages = {
        "Acme.Editor": {"package_description": "Edits\ntext.", "tags": "text", "moniker": "editor", "locales": texts},
        "Acme.Runtime": {"license": "free"},
        "Acme.Old": {},
        "Ünïcode.文書": {},
    }
    for package_id, fields in packages.items():
        form = {"package_id": package_id, "package_name": f"Name of {package_id}", "package_publisher": "Acme"}
        await done(api, "POST", "add_package", data={**form, **fields})
    await done(api, "PATCH", "edit_package", "Acme.Runtime", data=logo_form())
    await done(api, "PATCH", "set_package_active", "Acme.Old", data={"package_active": "0"})


def logo_form() -> FormData:
    form = FormData()
    form.add_field("Logo", picture(), filename="logo.png", content_type="image/png")
    return form


async def use_everything(cluster: Cluster, admin: Api) -> list[Published]:
    """Use each feature that a tenant has. Returns the versions whose files clients may download."""
    bob = await user(cluster, admin, "bob", Role.APPROVER)
    eve = await user(cluster, admin, "eve", Role.ADMINISTRATOR)
    await user(cluster, admin, "anna", Role.AUDITOR)
    settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in POLICY.items()}
    agreements = json.dumps([{"label": "Terms", "text": "Be kind.", "url": "https://example.com/terms"}])
    settings |= {"version_key": "installer", "source_agreements": agreements, "client_authentication": "true"}
    settings["allowed_networks"] = "127.0.0.0/8,10.0.0.0/8"
    site = {"name": "Köln", "networks": ["10.20.0.0/16"], "downloads": "https://koeln.example.com"}
    settings["sites"] = json.dumps([site])
    await done(admin, "PATCH", "edit_settings", data=settings)
    await add_packages(admin)
    pipeline = await token(admin, "Über pipeline 1", role="publisher", package_ids="Acme.*")
    anyone = await token(eve, "approver", role="approver")

    by_token = await publish(pipeline, "Acme.Editor", "2.1", **FIELDS)
    nested: dict[str, Any] = {"file_type": "ZIP", "file_type_nested": "PORTABLE", "file_nested_path": "bin/a, b.exe"}
    in_archive = await publish(
        admin, "Acme.Editor", "2.1", **nested, file_architect="arm64", portable_command_alias="a"
    )
    external = {**INSTALLER, **EXTERNAL, "package_version": "2.2", "channel": "beta"}
    await done(pipeline, "POST", "add_package_version", "Acme.Editor", data=external)
    held = await publish(admin, "Acme.Runtime", "1.0")
    rolled_back = await publish(eve, "Acme.Runtime", "1.1")
    paused = await publish(admin, "Ünïcode.文書", "1.0")
    old = await publish_in_one_call(pipeline, "Acme.Old", "0.9", content=b"old")

    await done(bob, "POST", "approve_version", by_token.uid)
    await done(anyone, "POST", "approve_version", held.uid)
    await done(bob, "POST", "promote_version", by_token.uid, data={"ring": "broad"})
    await done(bob, "POST", "hold_version", held.uid, data={"reason": "It deletes files."})
    await done(anyone, "POST", "roll_back_version", rolled_back.uid, data={"reason": "No."})
    await done(anyone, "POST", "pause_version", paused.uid)
    await done(pipeline, "PATCH", "pin_version", old.uid, data={"pinned": "1"})
    await cluster.mongo["upload"]["uploads"].update_one(
        {"tenant_id": admin.tenant_id, "version_uid": held.uid}, {"$set": {"scan.state": "infected"}}
    )

    client = await done(admin, "POST", "add_client", data={"client_name": "pc-1"})
    await done(admin, "PATCH", "edit_client", client["client_id"], data={"ring": "pilot", "enabled": "0"})
    group = await done(admin, "POST", "add_blacklist_group", data={"name": "Games", "package_ids": "Acme.Old"})
    for entry in (
        {"client_id": client["client_id"], "network": "10.0.0.0/8", "package_ids": "Acme.Editor"},
        {"group": group["group_id"]},
        {"package_ids": "Acme.Later", "allow_unknown": "true"},
    ):
        await done(admin, "POST", "add_blacklist_entry", data=entry)
    program = await upload(admin, b"the client program")
    await done(admin, "POST", "publish_client", data={"version": "1.2.3.4", "server_filename": program})
    await upload(pipeline, b"an unassigned upload")
    assert (await send_chunk(admin, "halfway", b"a" * 2000, 0, 1000)).status == 200
    return [by_token, in_archive, old]


async def everything(api: Api) -> dict[str, Any]:
    """All that the interface shows of a tenant, but not what an archive leaves out: tokens, uploads, usage."""
    shown: dict[str, Any] = {
        "packages": await done(api, "POST", "get_packages", params={"include_disabled": "true"}),
        "settings": (await done(api, "GET", "server_information"))["settings"],
        "releases": await done(api, "GET", "find_releases", params={"state": "all"}),
        "client": (await done(api, "POST", "client_version"))["Version"],
    }
    for name in ("get_clients", "get_blacklist", "get_blacklist_groups", "get_users", "preview_retention"):
        shown[name] = await done(api, "GET", name)
    del shown["preview_retention"]["revision"]
    for package in shown["packages"]:
        package_id = package["PACKAGE_ID"]
        shown[package_id] = await done(api, "GET", "get_package_details", package_id)
        for uid in package["VERSIONS_UID"]:
            for name in ("get_version_details", "get_release"):
                shown[f"{name} {uid}"] = await done(api, "GET", name, uid)
    return shown


async def test_a_tenant_that_used_every_feature_moves_whole(cluster: Cluster, tmp_path: Path) -> None:
    admin = await cluster.services.tenant()
    versions = await use_everything(cluster, admin)
    before, entries = await everything(admin), await done(admin, "GET", "get_audit_log", params={"limit": "1000"})
    assert len(before["releases"]["releases"]) == 7
    await export_tenant(cluster, admin.tenant_id, tmp_path / "tenant.tar")
    where = addresses_of(cluster)
    assert await delete_tenant(where.addresses, where.installers, admin.tenant_id)
    # A replica that read the policies before the deletion adds a run after it.
    run = {"tenant_id": admin.tenant_id, "work": {"retention": {"due": datetime.now(UTC) + timedelta(days=1)}}}
    await cluster.mongo["catalog"]["retention_runs"].insert_one(run)

    await import_archive(cluster, tmp_path / "tenant.tar")

    again = await admin.signed_in()
    after = await everything(again)
    assert {name: after.get(name) for name in before} == before
    assert await missing_versions(again, versions) == []
    moved = await done(again, "GET", "get_audit_log", params={"limit": "1000"})
    assert [entry for entry in entries if entry not in moved] == []
    assert await done(again, "GET", "get_tokens") == []
    assert await done(again, "GET", "get_finished_uploads") == []
    uploads = cluster.mongo["upload"]["uploads"]
    assert (
        await uploads.count_documents({"tenant_id": admin.tenant_id, "scan.state": "infected", "withheld": True}) == 1
    )
    # An archive leaves out the announcement of the client program, which no list shows.
    assert [line for line in await violations(cluster, [admin.tenant_id]) if "had 0 effects" not in line] == []
