"""Edits of a tenant's policy, and the policy in the settings and in the audit log."""

import json
from typing import Any

import pytest

from catalog_service.releases.gates import Policy
from catalog_service.releases.policy_edits import edited, to_audit_texts, to_settings
from common.errors import InvalidField
from tests.support.tables import each

GATES = {"everyone": {"age_days": 7, "approvals": 2}, "pilot": {"signature": "signed", "scan": True}}
POLICY = edited(Policy(), {"rings": "pilot, broad ,everyone", "gates": json.dumps(GATES)})


def test_rings_and_gates_are_canonical_and_in_order() -> None:
    gates = '{"pilot":{"scan":true,"signature":"signed"},"everyone":{"approvals":2,"age_days":7}}'
    texts = {"rings": "pilot,broad,everyone", "ring_rules": "", "gates": gates, "retention": ""}
    assert to_audit_texts(POLICY) == texts


def test_a_tenant_without_a_policy_has_empty_parts() -> None:
    assert to_settings(Policy()) == {"rings": [], "ring_rules": [], "gates": {}, "retention": []}
    assert to_audit_texts(Policy()) == dict.fromkeys(("rings", "ring_rules", "gates", "retention"), "")


def test_gates_without_rings_are_for_everyone() -> None:
    policy = edited(Policy(), {"gates": '{"everyone": {"approvals": 1}}'})
    assert to_settings(policy)["rings"] == ["everyone"]


def test_canonical_texts_are_accepted_again() -> None:
    assert edited(Policy(), to_audit_texts(POLICY)) == POLICY


@each(
    ("fields", "rings", "gates"),
    [
        ({"rings": ""}, (), set()),
        ({"rings": "a,everyone"}, ("a", "everyone"), {"everyone"}),
        ({"rings": "everyone,pilot"}, ("everyone", "pilot"), {"everyone", "pilot"}),
        ({"rings": "a,b", "gates": '{"b": {"approvals": 1}}'}, ("a", "b"), {"b"}),
        ({"gates": ""}, POLICY.rings, set()),
        ({"gates": '{"broad": {"approvals": 0}}'}, POLICY.rings, set()),
        ({"retention": "[]"}, POLICY.rings, {"pilot", "everyone"}),
    ],
)
def test_gates_of_removed_rings_are_removed(fields: dict[str, str], rings: tuple[str, ...], gates: set[str]) -> None:
    policy = edited(POLICY, fields)
    assert (policy.rings, set(policy.gates)) == (rings, gates)


@each(
    ("name", "text", "reason", "params"),
    [
        ("rings", "a,A", "ring_twice", {"ring": "A"}),
        ("rings", "*", "not_a_ring", {"ring": "*"}),
        ("rings", "a,,b", "not_a_ring", {"ring": ""}),
        ("rings", "ü", "not_a_ring", {"ring": "ü"}),
        ("rings", "x" * 33, "not_a_ring", {}),
        ("rings", "a\nb", "not_a_ring", {}),
        ("rings", ",".join("abcdefghijk"), "too_many_items", {"most": "10"}),
        ("gates", "{", "not_json", {"line": "1", "column": "2"}),
        ("gates", "[]", "bad_policy_value", {"place": "gates"}),
        ("gates", "[" * 5000, "not_json", {}),
        ("gates", '{"x": {}}', "no_such_ring", {"rings": "pilot, broad, everyone"}),
        ("gates", '{"Pilot": {"scan": true}}', "no_such_ring", {}),
        ("gates", '{"pilot": {"aprovals": 2}}', "unknown_policy_part", {"place": "pilot.aprovals"}),
        ("gates", '{"pilot": {"approvals": "2"}}', "bad_policy_value", {"place": "pilot.approvals"}),
        ("gates", '{"pilot": {"approvals": true}}', "bad_policy_value", {"place": "pilot.approvals"}),
        ("gates", '{"pilot": {"approvals": -1}}', "bad_policy_value", {"place": "pilot.approvals"}),
        ("gates", '{"pilot": {"approvals": 21}}', "bad_policy_value", {"place": "pilot.approvals"}),
        ("gates", '{"pilot": {"age_days": 0.5}}', "bad_policy_value", {"place": "pilot.age_days"}),
        ("gates", '{"pilot": {"scan": 1}}', "bad_policy_value", {"place": "pilot.scan"}),
        ("gates", '{"pilot": {"signature": "unsigned"}}', "bad_policy_value", {"place": "pilot.signature"}),
        ("gates", '{"pilot": {"signature": [{"package": "a"}]}}', "bad_policy_value", {"place": "pilot.signature"}),
        ("gates", '{"pilot": {"signature": {"publisher": "Acme"}}}', "not_a_publisher", {"publisher": "Acme"}),
        ("gates", '{"pilot": {"signature": {"publisher": "CN=Acme, S=Bayern"}}}', "not_a_publisher", {}),
        ("gates", '{"pilot": {"signature": {"publisher": "2.5.4.3=Acme"}}}', "not_a_publisher", {}),
        ("gates", '{"pilot": {"signature": {"publisher": "CN=a,"}}}', "not_a_publisher", {}),
        ("gates", '{"pilot": {"signature": [{"packages": "a/b"}]}}', "not_a_pattern", {"pattern": "a/b"}),
        ("gates", json.dumps({"pilot": {"signature": [{}] * 101}}), "bad_policy_value", {"place": "pilot.signature"}),
        ("gates", '{"pilot": null}', "bad_policy_value", {"place": "pilot"}),
        ("retention", "{}", "bad_policy_value", {"place": "retention"}),
        ("retention", '[{"keep_versions": 0}]', "bad_policy_value", {"place": "0.keep_versions"}),
        ("retention", '[{"packages": "a,b"}]', "not_a_pattern", {"pattern": "a,b"}),
        ("retention", json.dumps([{}] * 101), "bad_policy_value", {"place": "retention"}),
    ],
)
def test_a_wrong_policy_is_refused_with_its_place(name: str, text: str, reason: str, params: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as refusal:
        edited(POLICY, {name: text})
    assert (refusal.value.field, refusal.value.params["reason"]) == (name, reason)
    assert refusal.value.params.items() >= params.items()
