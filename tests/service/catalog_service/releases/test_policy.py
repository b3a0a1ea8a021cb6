"""The release policy as one part of `edit_settings`: rings, ring rules, gates and retention rules."""

import json

from common.http.middleware import AUDIT_HEADER
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant
from tests.support.tables import each, every_cell

RULES = [{"network": "10.1.2.3/16", "ring": "pilot"}, {"app_role": " Late ", "ring": "everyone"}]
CLEAN_RULES = [{"network": "10.1.0.0/16", "ring": "pilot"}, {"app_role": "Late", "ring": "everyone"}]
POLICY = {
    "rings": "pilot, everyone",
    "gates": '{"pilot": {"scan": true}}',
    "retention": '[{"keep_versions": 3}]',
    "ring_rules": json.dumps(RULES),
}


async def edit(tenant: ReleaseTenant, **form: str) -> Answer:
    return await tenant.catalog.call(tenant.ada, "PATCH", "edit_release_policy", data=form)


async def test_a_policy_is_stored_in_one_spelling(tenant: ReleaseTenant) -> None:
    assert await tenant.policy() == {"rings": [], "ring_rules": [], "gates": {}, "retention": []}

    answer = await edit(tenant, **POLICY)

    assert (answer.status, answer.body) == (200, {"Message": "Settings were updated successfully!"})
    assert await tenant.policy() == {
        "rings": ["pilot", "everyone"],
        "gates": {"pilot": {"scan": True}},
        "retention": [{"keep_versions": 3}],
        "ring_rules": CLEAN_RULES,
    }


async def test_the_audit_log_has_the_old_and_the_new_policy(tenant: ReleaseTenant) -> None:
    gates = '{"pilot":{"scan":true}}'
    for form, changes in (
        (POLICY, {"rings": ["", "pilot,everyone"], "gates": ["", gates]}),
        ({"rings": "everyone"}, {"rings": ["pilot,everyone", "everyone"], "gates": [gates, ""]}),
        ({"ring_rules": ""}, {"ring_rules": [json.dumps(CLEAN_RULES, separators=(",", ":")), ""]}),
    ):
        recorded = json.loads((await edit(tenant, **form)).headers[AUDIT_HEADER])["changes"]
        assert recorded.keys() >= form.keys()
        assert {name: recorded[name] for name in changes} == changes


async def test_a_refused_policy_changes_nothing(tenant: ReleaseTenant) -> None:
    await edit(tenant, **POLICY)
    before = await tenant.policy()
    for name in ("rings", "gates", "retention", "ring_rules"):
        answer = await edit(tenant, **{"rings": "a,b", "gates": "{}", "retention": "[]", name: "[" * 32})
        assert (answer.status, answer.body["params"]["field"]) == (400, name)
        assert json.loads(answer.headers[AUDIT_HEADER])["changes"] == {}
    assert await tenant.policy() == before


async def test_the_longest_policy_fits_the_header_of_the_audit_log(tenant: ReleaseTenant) -> None:
    rule = {"app_role": "\u00fc" * 128, "ring": "pilot"}
    packages = {"packages": "\u00fc" * 120}
    form = {
        "rings": "pilot",
        "ring_rules": json.dumps([rule] * 90, ensure_ascii=False),
        "gates": json.dumps({"pilot": {"signature": [packages] * 95}}, ensure_ascii=False),
        "retention": json.dumps([{**packages, "keep_versions": 1}] * 95, ensure_ascii=False),
    }
    for _ in range(2):
        answer = await edit(tenant, **form)
        assert answer.status == 200, answer.body
        assert len(answer.headers[AUDIT_HEADER]) < HEADER_LIMIT


async def test_invalid_ring_rules_are_refused(tenant: ReleaseTenant) -> None:
    await tenant.set_policy("pilot,everyone")
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
                answer = await edit(tenant, ring_rules=text)
                params = answer.body["params"]
                assert (answer.status, params["field"], params["reason"]) == (400, "ring_rules", reason)
    assert (await tenant.policy())["ring_rules"] == []


@each(
    ("rings", "ring", "reason"),
    [
        ("a,b", "b", ""),
        ("a,b", "c", "no_such_ring"),
        ("", "everyone", ""),
        ("", "b", "no_such_ring"),
        (None, "a", "no_rings"),
    ],
    ids=str,
)
async def test_ring_rules_are_for_the_rings_of_the_same_form(
    catalog: Catalog, rings: str | None, ring: str, reason: str
) -> None:
    form = {} if rings is None else {"rings": rings}
    answer = await edit(ReleaseTenant(catalog), **form, ring_rules=json.dumps([{"app_role": "Any", "ring": ring}]))
    assert answer.body.get("params", {}).get("reason", "") == reason


async def test_a_client_may_have_a_ring_of_the_tenant_only(tenant: ReleaseTenant) -> None:
    async def check(ring: str) -> tuple[int, str]:
        answer = await tenant.catalog.call(tenant.ada, "POST", "check_names", json={"ring": ring})
        return answer.status, answer.body.get("params", {}).get("reason", "")

    assert await check("pilot") == (400, "no_rings")
    await tenant.set_policy("pilot,everyone")
    expected = {"pilot": (200, ""), "everyone": (200, ""), "Pilot": (400, "no_such_ring")}
    assert {ring: await check(ring) for ring in expected} == expected


async def test_new_ring_rules_leave_the_catalog_as_it_is(tenant: ReleaseTenant) -> None:
    await tenant.set_policy("pilot,everyone")
    revisions, tenant_id = tenant.catalog.store.revisions, tenant.ada.tenant_id
    before = await revisions.state(tenant_id, "")

    policy = await tenant.set_policy(None, ring_rules=RULES)

    assert policy["ring_rules"] == CLEAN_RULES
    assert await revisions.state(tenant_id, "") == before
    await tenant.set_policy("everyone")
    assert await revisions.state(tenant_id, "") != before
