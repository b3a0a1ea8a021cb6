"""Rings, ring rules, gates and retention rules: catalog_service checks and stores the policy first."""

import json
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.errors import InvalidField, Problem
from common.http.middleware import AUDIT_HEADER
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.auth import Auth
from tests.support.tables import every_cell

RULES = [{"network": "10.1.2.3/16", "ring": "pilot"}, {"app_role": " Late ", "ring": "everyone"}]
CLEAN_RULES = [{"network": "10.1.0.0/16", "ring": "pilot"}, {"app_role": "Late", "ring": "everyone"}]
POLICY = {
    "rings": "pilot, everyone",
    "gates": '{"pilot": {"scan": true}}',
    "retention": '[{"keep_versions": 3}]',
    "ring_rules": json.dumps(RULES),
}


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    return await auth.tenant()


async def edit(auth: Auth, caller: Caller, **form: str) -> Answer:
    return await auth.call(caller, "PATCH", "edit_settings", data=form)


async def shown(auth: Auth, caller: Caller) -> dict[str, Any]:
    settings = (await auth.call(caller, "GET", "server_information")).body["settings"]
    return {name: settings[name] for name in POLICY}


async def test_the_policy_is_shown_as_catalog_service_stored_it(auth: Auth, caller: Caller) -> None:
    answer = await edit(auth, caller, **POLICY)

    assert answer.status == 200, answer.body
    assert await shown(auth, caller) == {
        "rings": ["pilot", "everyone"],
        "gates": {"pilot": {"scan": True}},
        "retention": [{"keep_versions": 3}],
        "ring_rules": CLEAN_RULES,
    }
    tenant = (await auth.call(caller, "POST", "find_tenant", json={})).body
    assert (tenant["rings"], tenant["gates"]) == (["pilot", "everyone"], POLICY["gates"])
    assert auth.stubs.policies[caller.tenant_id]["rings"] == "pilot,everyone"


async def test_the_audit_log_has_the_old_and_the_new_policy(auth: Auth, caller: Caller) -> None:
    for form, changes in (
        (POLICY, {"rings": ["", "pilot,everyone"], "gates": ["", POLICY["gates"]]}),
        ({"rings": "everyone"}, {"rings": ["pilot,everyone", "everyone"], "gates": [POLICY["gates"], ""]}),
        ({"ring_rules": ""}, {"ring_rules": [json.dumps(CLEAN_RULES, separators=(",", ":")), ""]}),
    ):
        answer = await edit(auth, caller, **form)
        recorded = json.loads(answer.headers[AUDIT_HEADER])["changes"]
        assert recorded.keys() >= form.keys()
        assert {name: recorded[name] for name in changes} == changes


async def test_a_change_of_other_settings_does_not_ask_catalog_service(auth: Auth, caller: Caller) -> None:
    await edit(auth, caller, strict_installers="1", ring_rules="[]")

    assert caller.tenant_id not in auth.stubs.policies


async def test_a_refused_policy_changes_no_setting(auth: Auth, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await auth.tenants.find(caller.tenant_id)
    for refusal, status, field in (
        (InvalidField("gates", "is no JSON", reason="not_json"), 400, "gates"),
        (Problem("a secret of the driver"), 500, None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(auth.stubs, "refusal", refusal)
            answer = await edit(auth, caller, **{**POLICY, "client_authentication": "1"})
        assert (answer.status, answer.body.get("params", {}).get("field")) == (status, field)
        assert await auth.tenants.find(caller.tenant_id) == before

    assert (await edit(auth, caller, **POLICY)).status == 200
    assert (await shown(auth, caller))["rings"] == ["pilot", "everyone"]


async def test_a_refused_setting_changes_no_policy(auth: Auth, caller: Caller) -> None:
    for form in ({"version_key": "neither"}, {"allowed_networks": "192.0.2.99"}, {"ring_rules": "x"}):
        assert (await edit(auth, caller, **{**POLICY, **form})).status == 400
    unknown = make_caller()
    assert (await edit(auth, unknown, **POLICY)).status == 404
    assert not auth.stubs.policies.keys() & {caller.tenant_id, unknown.tenant_id}


async def test_invalid_ring_rules_are_refused(auth: Auth) -> None:
    caller = await auth.tenant(rings=("pilot", "everyone"))
    network = {"network": "10.0.0.0/8", "ring": "pilot"}
    with every_cell() as cell:
        for rules, reason in (
            ("pilot", "not_a_json_list"),
            ("{}", "not_a_json_list"),
            ("[" * 5000, "not_a_json_list"),
            ("[1]", "not_ring_rules"),
            ([{}], "not_ring_rules"),
            ([{"ring": "pilot"}], "not_ring_rules"),
            ([{"network": "10.0.0.0/8"}], "not_ring_rules"),
            ([{**network, "app_role": "Pilot"}], "not_ring_rules"),
            ([{**network, "other": "x"}], "not_ring_rules"),
            ([{**network, "network": ""}], "not_ring_rules"),
            ([{**network, "network": 10}], "not_ring_rules"),
            ([{"app_role": " ", "ring": "pilot"}], "not_ring_rules"),
            ([{**network, "network": "10.0.0.0/33"}], "not_a_network"),
            ([{**network, "network": "fe80::1%eth0"}], "not_a_network"),
            ([{**network, "ring": "Pilot"}], "no_such_ring"),
            ([{**network, "ring": "*"}], "no_such_ring"),
            ([{"app_role": "a" * 129, "ring": "pilot"}], "too_long"),
            ([{"app_role": "a\0b", "ring": "pilot"}], "bad_character"),
            ([network] * 201, "too_many_items"),
            ([{"app_role": "a" * 128, "ring": "pilot"}] * 120, "too_long"),
        ):
            with cell(str(rules)[:40]):
                text = rules if isinstance(rules, str) else json.dumps(rules)
                answer = await edit(auth, caller, ring_rules=text)
                params = answer.body["params"]
                assert (answer.status, params["field"], params["reason"]) == (400, "ring_rules", reason)
    assert (await shown(auth, caller))["ring_rules"] == []


async def test_ring_rules_are_for_the_rings_of_the_same_form(auth: Auth, caller: Caller) -> None:
    for rings, ring, status in (
        ("a,b", "b", 200),
        ("a,b", "c", 400),
        ("", "everyone", 200),
        ("", "b", 400),
        (",".join("abcdefghij"), "j", 200),
    ):
        rules = json.dumps([{"app_role": "Any", "ring": ring}])
        assert (await edit(auth, caller, rings=rings, ring_rules=rules)).status == status


async def test_ring_rules_without_rings_are_refused(auth: Auth, caller: Caller) -> None:
    answer = await edit(auth, caller, ring_rules=json.dumps([{"app_role": "Any", "ring": "everyone"}]))

    assert (answer.status, answer.body["params"]["reason"]) == (400, "no_rings")


async def test_concurrent_edits_leave_both_services_with_one_policy(auth: Auth, caller: Caller) -> None:
    async def edit_at_the_other_replica() -> None:
        answer = await auth.replica.call(caller, "PATCH", "edit_settings", data={"rings": "second"})
        assert answer.status == 200, answer.body

    auth.stubs.stored = edit_at_the_other_replica
    assert (await edit(auth, caller, rings="first")).status == 200

    assert auth.stubs.policies[caller.tenant_id]["rings"] == "second"
    assert (await auth.tenants.find(caller.tenant_id)).rings == ("second",)
