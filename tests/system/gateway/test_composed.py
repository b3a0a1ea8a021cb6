"""Operations that concern two services, through the gateway."""

from typing import Any

import pytest

from tests.support.system.publishing import add_package, package_id
from tests.support.system.services import Api

LISTS = [
    ("add_blacklist_entry", {"network": "10.0.0.0/8"}, "get_blacklist"),
    ("add_blacklist_group", {"name": "Tools"}, "get_blacklist_groups"),
]


@pytest.mark.parametrize(("operation", "form", "listing"), LISTS)
async def test_a_list_of_packages_may_name_unknown_ones_on_request_only(
    tenant: Api, operation: str, form: dict[str, str], listing: str
) -> None:
    known = package_id()
    await add_package(tenant, known)
    form = {**form, "package_ids": f"{known},{known[:-1]}"}

    refused = await tenant.call("POST", operation, data=form)
    items = (await tenant.call("GET", listing)).body
    accepted = await tenant.call("POST", operation, data={**form, "allow_unknown": "true"})

    assert (refused.status, refused.body["code"], items) == (400, "invalid_field", [])
    assert refused.body["params"]["nearest"] == known
    assert accepted.status == 201
    entries = (await tenant.call("GET", "get_audit_log", params={"operation": operation})).body
    assert [entry["target"]["package_ids"] for entry in entries] == [form["package_ids"]] * 2


@pytest.mark.parametrize(("operation", "form", "listing"), LISTS)
async def test_the_audit_log_names_the_packages_of_a_form_with_an_invalid_flag(
    tenant: Api, operation: str, form: dict[str, str], listing: str
) -> None:
    refused = await tenant.call("POST", operation, data={**form, "package_ids": "A.B", "allow_unknown": "maybe"})

    assert (refused.status, refused.body["params"]["field"]) == (400, "allow_unknown")
    assert (await tenant.call("GET", listing)).body == []
    [entry] = (await tenant.call("GET", "get_audit_log", params={"operation": operation})).body
    assert (entry["target"], entry["status"]) == ({"package_ids": "A.B"}, 400)


async def test_a_form_without_packages_names_none(tenant: Api) -> None:
    group = {"name": "Tools", "package_ids": "Not.There", "allow_unknown": "1"}
    group_id = (await tenant.call("POST", "add_blacklist_group", data=group)).body["group_id"]

    assert (await tenant.call("POST", "add_blacklist_entry", data={"group": group_id})).status == 201


SETTINGS = {"strict_installers": "true", "version_key": "installer"}
POLICY = {"rings": "pilot,everyone", "gates": '{"pilot":{"scan":true}}', "retention": '[{"keep_versions":3}]'}
BOTH = {**SETTINGS, **POLICY, "ring_rules": '[{"network":"10.1.0.0/16","ring":"pilot"}]'}


async def settings(api: Api) -> dict[str, Any]:
    body: dict[str, Any] = (await api.call("GET", "server_information")).body["settings"]
    return body


async def test_one_form_changes_settings_of_two_services(tenant: Api) -> None:
    assert (await tenant.call("PATCH", "edit_settings", data=BOTH)).status == 200

    changed = await settings(tenant)
    assert (changed["strict_installers"], changed["version_key"]) == (True, "installer")
    assert changed["rings"] == ["pilot", "everyone"]
    assert changed["ring_rules"] == [{"ring": "pilot", "network": "10.1.0.0/16"}]
    [entry] = (await tenant.call("GET", "get_audit_log", params={"operation": "edit_settings"})).body
    before = dict.fromkeys(BOTH, "") | {"strict_installers": "false", "version_key": "version"}
    assert (entry["status"], entry["target"]) == (200, {})
    assert entry["changes"] == {name: {"before": before[name], "after": value} for name, value in BOTH.items()}


@pytest.mark.parametrize("form", [SETTINGS, POLICY, {}], ids=["settings", "policy", "nothing"])
async def test_a_form_may_have_settings_of_one_service(tenant: Api, form: dict[str, str]) -> None:
    before = await settings(tenant)

    assert (await tenant.call("PATCH", "edit_settings", data=form)).status == 200

    after = await settings(tenant)
    assert {name for name in after if after[name] != before[name]} == form.keys()


@pytest.mark.parametrize(
    "part",
    [
        {"version_key": "neither"},
        {"allowed_networks": "192.0.2.99"},
        {"rings": "a,A"},
        {"ring_rules": "x"},
        {"gates": "x"},
        {"retention": "x"},
        {"no_setting": "1"},
    ],
    ids=str,
)
async def test_a_form_that_one_service_refuses_changes_nothing(tenant: Api, part: dict[str, str]) -> None:
    before = await settings(tenant)

    refused = await tenant.call("PATCH", "edit_settings", data={**BOTH, **part})

    assert refused.status == 400
    assert await settings(tenant) == before
    [entry] = (await tenant.call("GET", "get_audit_log", params={"operation": "edit_settings"})).body
    assert (entry["status"], entry["changes"]) == (400, {})


async def test_a_client_gets_a_ring_of_the_tenant_only(tenant: Api) -> None:
    client_id = (await tenant.call("POST", "add_client", data={"client_name": "pc"})).body["client_id"]

    async def move(ring: str) -> tuple[int, str]:
        answer = await tenant.call("PATCH", "edit_client", client_id, data={"ring": ring})
        return answer.status, answer.body.get("params", {}).get("reason", "")

    assert [await move("pilot"), await move("")] == [(400, "no_rings"), (200, "")]
    await tenant.call("PATCH", "edit_settings", data=POLICY)
    expected = {"pilot": (200, ""), "Pilot": (400, "no_such_ring"), "*": (400, "no_such_ring"), "": (200, "")}
    assert {ring: await move(ring) for ring in expected} == expected
