"""The record of a version is edited; its file stays, and no edit passes the approvers."""

import asyncio
import json
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.http.middleware import AUDIT_HEADER
from common.tenants import VersionKey
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.catalog import EXTERNAL, Catalog
from tests.support.services.releases import ReleaseTenant
from tests.support.tables import each

CODE = "{0A1B2C3D-0000-4000-8000-00000000000F}"


async def edit(catalog: Catalog, caller: Caller, uid: str, match: str = "", **fields: str) -> Answer:
    headers = {"If-Match": match} if match else {}
    return await catalog.call(caller, "PATCH", "edit_package_version", uid, data=fields, headers=headers)


async def read(catalog: Catalog, caller: Caller, uid: str) -> tuple[dict[str, Any], str]:
    """The details of a version, and its ETag."""
    answer = await catalog.call(caller, "GET", "get_version_details", uid)
    assert answer.status == 200, answer.body
    return answer.body, answer.headers["ETag"]


@pytest.fixture
async def uid(catalog: Catalog, caller: Caller) -> str:
    return await catalog.add_version(caller, switch_Silent="/q", release_notes="Slow.", dep_pkg_identifier="Acme.Base")


EDITS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"switch_Silent": "/qn"}, {"switch_Silent": "/qn"}),
    ({"switch_Silent": ""}, {"switch_Silent": ""}),
    ({"file_scope": "user"}, {"file_scope": "user"}),
    ({"release_notes": "Fast."}, {"release_notes": "Fast."}),
    ({"release_notes": ""}, {"release_notes": ""}),
    ({"productcode": CODE}, {"productcode": CODE}),
    ({"channel": ""}, {"channel": "stable"}),
    ({"dep_pkg_identifier": ""}, {"dep_pkg_identifier": [], "dep_pkg_min_version": []}),
    ({"dep_external": "Java"}, {"dep_external": ["Java"]}),
    ({"commands": "edit,view"}, {"commands": ["edit", "view"]}),
    (
        {"file_type": "ZIP", "file_type_nested": "MSI", "file_nested_path": "a.msi"},
        {"file_type": "ZIP", "file_type_nested": "MSI", "file_nested_path": ["a.msi"]},
    ),
]


@each(("sent", "changed"), EDITS)
async def test_an_edit_changes_the_sent_fields_only(
    catalog: Catalog, sent: dict[str, str], changed: dict[str, Any]
) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    needs = {"dep_pkg_identifier": "Acme.Base", "dep_pkg_min_version": "2"}
    uid = await catalog.add_version(caller, switch_Silent="/q", release_notes="Slow.", **needs)
    before, _ = await read(catalog, caller, uid)
    answer = await edit(catalog, caller, uid, **sent)
    assert answer.status == 200, answer.body
    after, tag = await read(catalog, caller, uid)
    assert after == {**before, **changed, "revision": tag.strip('"')}
    assert answer.headers["ETag"] == tag


async def test_an_edit_keeps_the_file(catalog: Catalog, caller: Caller, uid: str) -> None:
    (before,) = await catalog.versions(caller)
    await edit(catalog, caller, uid, switch_Silent="/x")
    (after,) = await catalog.versions(caller)
    assert after["INSTALLER_SHA256"] == before["INSTALLER_SHA256"]
    assert after["INSTALLER_URL"].partition("?")[0] == before["INSTALLER_URL"].partition("?")[0]


async def test_an_external_installer_stays(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller, **EXTERNAL)
    assert (await edit(catalog, caller, uid, switch_Silent="/x")).status == 200
    details, _ = await read(catalog, caller, uid)
    assert (details["installer_url"], details["switch_Silent"]) == (EXTERNAL["installer_url"], "/x")


@each("name", ["package_version", "installer_url", "installer_sha256"])
async def test_an_edit_of_what_stays_is_refused(catalog: Catalog, name: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    uid = await catalog.add_version(caller, **EXTERNAL)
    details, _ = await read(catalog, caller, uid)
    others = {"package_version": "9", "installer_url": "https://evil.example.com/a.msi", "installer_sha256": "0" * 64}
    answer = await edit(catalog, caller, uid, **{name: others[name]}, switch_Silent="/x")
    assert (answer.status, answer.body["params"]["field"]) == (400, name)
    assert (await read(catalog, caller, uid))[0] == details
    assert (await edit(catalog, caller, uid, **{name: details[name]}, switch_Silent="/x")).status == 200


async def test_a_strict_tenant_checks_an_edit_against_the_file_that_stays(catalog: Catalog) -> None:
    caller = make_caller(make_tenant(strict_installers=True))
    await catalog.add_package(caller)
    catalog.stubs.inspected = {"file_type": "MSI", "file_architect": "x64", "file_scope": "machine"}
    uid = await catalog.add_version(caller, file_type="MSI")
    for sent in ({}, {"server_filename": ""}, {"server_filename": "none.msi"}):
        answer = await edit(catalog, caller, uid, file_type="ZIP", file_type_nested="EXE", file_nested_path="a", **sent)
        assert (answer.status, answer.body["code"]) == (400, "installer_contradicts")


async def test_the_second_of_two_editors_is_told(catalog: Catalog, caller: Caller, uid: str) -> None:
    _, tag = await read(catalog, caller, uid)
    assert (await edit(catalog, caller, uid, tag, switch_Silent="/one")).status == 200
    answer = await edit(catalog, caller, uid, tag, switch_Silent="/two")
    assert (answer.status, answer.body["code"]) == (412, "version_changed")
    assert answer.body["params"] == {"reason": "version_changed_by", "by": caller.username, "fields": "switch_Silent"}
    assert (await read(catalog, caller, uid))[0]["switch_Silent"] == "/one"


async def test_one_of_many_edits_at_once_wins(catalog: Catalog, caller: Caller, uid: str) -> None:
    _, tag = await read(catalog, caller, uid)
    answers = await asyncio.gather(*(edit(catalog, caller, uid, tag, switch_Log=f"/l{n}") for n in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412, 412]


async def test_edits_of_other_fields_at_once_are_all_kept(catalog: Catalog, caller: Caller, uid: str) -> None:
    names = ("switch_Silent", "switch_Log", "switch_Custom")
    answers = await asyncio.gather(*(edit(catalog, caller, uid, **{name: "/x"}) for name in names))
    assert {answer.status for answer in answers} == {200}
    details, _ = await read(catalog, caller, uid)
    assert [details[name] for name in names] == ["/x"] * 3


@each(
    ("sent", "field"),
    [
        ({"file_scope": "planet"}, "file_scope"),
        ({"file_scope": ""}, "file_scope"),
        ({"productcode": "x"}, "productcode"),
        ({"commands": "x" * 41}, "commands[0]"),
        ({"allowed_markets": "DE", "excluded_markets": "AT"}, "excluded_markets"),
    ],
)
async def test_a_wrong_field_is_refused_as_in_a_new_version(catalog: Catalog, sent: dict[str, str], field: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    uid = await catalog.add_version(caller)
    answer = await edit(catalog, caller, uid, **sent)
    assert (answer.status, answer.body["params"]["field"]) == (400, field)


async def test_an_edit_is_checked_together_with_what_stays(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller, "acme.shop")
    uid = await catalog.add_version(caller, "acme.shop", allowed_markets="DE")
    answer = await edit(catalog, caller, uid, excluded_markets="AT")
    assert (answer.status, answer.body["params"]["field"]) == (400, "excluded_markets")


async def test_an_edit_cannot_make_two_equal_installers(catalog: Catalog) -> None:
    caller = make_caller(make_tenant(version_key=VersionKey.INSTALLER))
    await catalog.add_package(caller, "acme.editor")
    first = await catalog.add_version(caller, file_scope="machine")
    second = await catalog.add_version(caller, file_scope="user")
    answer = await edit(catalog, caller, second, file_scope="machine")
    assert (answer.status, answer.body["code"]) == (409, "version_exists")
    assert (await edit(catalog, caller, first, file_architect="arm64")).status == 200
    assert (await edit(catalog, caller, second, file_scope="machine")).status == 200


async def test_a_token_edits_only_its_packages_and_takes_no_identity(
    catalog: Catalog, caller: Caller, uid: str
) -> None:
    await catalog.add_package(caller, "Big.Editor")
    await catalog.add_version(caller, "Big.Editor", productcode=CODE)
    other = make_caller(caller.tenant, username="token:ci", packages=("Big.*",), creator="erika")
    assert (await edit(catalog, other, uid, switch_Log="/l")).status == 403
    own = make_caller(caller.tenant, username="token:ci", packages=("acme.*",), creator="erika")
    answer = await edit(catalog, own, uid, productcode=CODE)
    assert (answer.status, answer.body["code"]) == (403, "identity_taken")
    assert (await edit(catalog, own, uid, switch_Log="/l")).status == 200


async def test_a_deleted_version_is_not_edited(catalog: Catalog, caller: Caller, uid: str) -> None:
    await catalog.call(caller, "DELETE", "delete_package_version", "acme.editor", data={"versions_uids": uid})
    assert (await edit(catalog, caller, uid, switch_Log="/l")).status == 404


async def test_the_audit_log_has_values_before_and_after(catalog: Catalog, caller: Caller, uid: str) -> None:
    answer = await edit(catalog, caller, uid, switch_Silent="/new", release_notes="x" * 300)
    changes = json.loads(answer.headers[AUDIT_HEADER])["changes"]
    assert changes["switch_Silent"] == ["/q", "/new"]
    assert changes["release_notes"][0] == "Slow."
    assert changes["release_notes"][1].startswith("sha256:")
    assert changes.keys() == {"switch_Silent", "release_notes"}


class TestApprovals:
    """Approvals are about what machines run."""

    @pytest.fixture
    async def tenant(self, catalog: Catalog) -> ReleaseTenant:
        tenant = ReleaseTenant(catalog)
        await catalog.add_package(tenant.ada)
        await tenant.set_policy(gates={"broad": {"approvals": 1}})
        return tenant

    async def test_an_approval_before_an_edit_does_not_count(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        uid = await tenant.publish()
        await tenant.done(tenant.bob, "approve_version", uid)
        assert (await edit(catalog, tenant.ada, uid, switch_Silent="/evil")).status == 200
        answer = await tenant.call(tenant.ada, "promote_version", uid, ring="broad")
        assert (answer.status, answer.body["code"]) == (409, "gate_waiting")
        await tenant.done(tenant.bob, "approve_version", uid)
        await tenant.done(tenant.ada, "promote_version", uid, ring="broad")
        assert await tenant.offered(uid) == ["pilot", "broad"]

    async def test_an_approver_approves_only_the_record_that_he_saw(
        self, catalog: Catalog, tenant: ReleaseTenant
    ) -> None:
        uid = await tenant.publish()
        seen = (await tenant.release(uid))["edited_at"]
        await edit(catalog, tenant.ada, uid, switch_Silent="/evil")
        answer = await tenant.call(tenant.bob, "approve_version", uid, edited_at=seen)
        assert (answer.status, answer.body["code"]) == (412, "version_changed")
        assert "switch_Silent" in answer.body["detail"]
        seen = (await tenant.release(uid))["edited_at"]
        await tenant.done(tenant.bob, "approve_version", uid, edited_at=seen)

    async def test_the_editor_cannot_approve(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        uid = await tenant.publish()
        await edit(catalog, tenant.bob, uid, switch_Silent="/evil")
        for person in (tenant.bob, tenant.ada):
            assert (await tenant.call(person, "approve_version", uid)).body["code"] == "own_version"
        await tenant.done(tenant.eve, "approve_version", uid)

    async def test_an_approved_version_is_rolled_back_first(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        uid = await tenant.publish()
        await tenant.done(tenant.bob, "approve_version", uid)
        await tenant.done(tenant.bob, "promote_version", uid, ring="broad")
        answer = await edit(catalog, tenant.ada, uid, switch_Silent="/evil")
        assert (answer.status, answer.body["code"]) == (409, "version_approved")
        await tenant.done(tenant.bob, "hold_version", uid, reason="x")
        assert (await edit(catalog, tenant.ada, uid, switch_Silent="/evil")).status == 409
        await tenant.done(tenant.bob, "roll_back_version", uid)
        assert (await edit(catalog, tenant.ada, uid, switch_Silent="/fixed")).status == 200
        await tenant.done(tenant.bob, "resume_version", uid)
        assert await tenant.offered(uid) == ["pilot"]

    async def test_a_version_from_before_the_rings_is_not_edited(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        await tenant.set_policy("", gates={})
        uid = await tenant.publish("0.9")
        await tenant.set_policy(gates={"broad": {"approvals": 1}})
        assert (await edit(catalog, tenant.ada, uid, switch_Silent="/evil")).status == 409

    async def test_release_notes_keep_approvals(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        uid = await tenant.publish()
        await tenant.done(tenant.bob, "approve_version", uid)
        await edit(catalog, tenant.ada, uid, release_notes="Fast.")
        await tenant.done(tenant.bob, "promote_version", uid, ring="broad")
        assert (await edit(catalog, tenant.ada, uid, release_notes="Faster.")).status == 200

    async def test_days_in_a_ring_count_from_the_edit(self, catalog: Catalog, tenant: ReleaseTenant) -> None:
        await tenant.set_policy(gates={"broad": {"age_days": 7}})
        uid = await tenant.publish()
        await tenant.days_pass(6)
        await edit(catalog, tenant.ada, uid, switch_Silent="/new")
        until = (await tenant.gate(uid, "broad", "age"))["until"]
        edited = next(event for event in (await tenant.release(uid))["history"] if event["event"] == "edited")
        assert until[:10] > edited["at"][:10]
        await tenant.days_pass(2)
        assert await tenant.offered(uid) == ["pilot"]


async def test_one_of_many_edits_of_a_package_at_once_wins(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller, "acme.race")
    for _ in range(2):  # A new package, and one with an edit.
        details = (await catalog.call(caller, "GET", "get_package_details", "acme.race")).body
        headers = {"If-Match": f'"{details["revision"]}"'}
        texts = [{"package_description": f"{details['revision']} {n}"} for n in range(5)]
        calls = [
            catalog.call(caller, "PATCH", "edit_package", "acme.race", data=each, headers=headers) for each in texts
        ]
        assert sorted(answer.status for answer in await asyncio.gather(*calls)) == [200, 412, 412, 412, 412]
