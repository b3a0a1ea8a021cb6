"""A change that concerns machines shows its effect first: `preview=true` answers it and changes nothing."""

from typing import Any

import pytest

from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant, checks

NOTHING: dict[str, list[Any]] = {"offered": [], "withdrawn": [], "held": [], "retired": []}


async def preview(tenant: ReleaseTenant, **fields: str) -> dict[str, Any]:
    """The effect of an edit of the policy: uids in each list, with the rings that get more or less."""
    data = {**fields, "preview": "true"}
    answer = await tenant.catalog.call(tenant.ada, "PATCH", "edit_release_policy", data=data)
    assert answer.status == 200, answer.body
    effect = answer.body["effect"]
    assert {name: effect[f"{name}_total"] for name in NOTHING} == {name: len(effect[name]) for name in NOTHING}
    return {
        name: [(row["uid"], *row["rings"]) if "rings" in row else row["uid"] for row in effect[name]]
        for name in NOTHING
    }


@pytest.fixture
async def waiting(tenant: ReleaseTenant) -> str:
    """A version in the ring `pilot`, of three rings; a gate keeps it from the last."""
    await tenant.set_policy(gates={"everyone": {"approvals": 1}})
    return await tenant.publish()


@pytest.mark.parametrize(
    ("fields", "lists", "rings"),
    [
        ({"rings": ""}, "offered", ["broad", "everyone"]),
        ({"rings": "broad,pilot,everyone"}, "offered", ["broad"]),
        ({"rings": "everyone"}, "withdrawn", ["pilot"]),
        ({"gates": "{}"}, "", []),
        ({"ring_rules": "[]"}, "", []),
    ],
    ids=["no rings", "another order", "only the last ring", "no gates", "ring rules"],
)
async def test_an_edit_of_the_policy_shows_what_machines_would_get(
    tenant: ReleaseTenant, waiting: str, fields: dict[str, str], lists: str, rings: list[str]
) -> None:
    before = await tenant.policy()
    assert await preview(tenant, **fields) == {**NOTHING, **({lists: [(waiting, *rings)]} if lists else {})}
    assert await tenant.policy() == before
    assert await tenant.offered(waiting) == ["pilot"]


async def test_a_preview_of_retention_shows_the_versions_that_it_would_hide(tenant: ReleaseTenant) -> None:
    old, _ = await tenant.publish("1.0"), await tenant.publish("2.0")
    await tenant.days_pass(365)
    effect = await preview(tenant, retention='[{"packages": "*", "keep_versions": 1}]')
    assert effect == {**NOTHING, "retired": [old]}


async def test_an_infected_version_is_held_before_the_gate_that_stopped_it_is_removed(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    catalog.stubs.infected, catalog.stubs.checks[uid] = [(tenant.ada.tenant_id, uid)], checks("infected")
    await tenant.rounds()
    assert await preview(tenant, rings="", gates="{}") == {**NOTHING, "held": [uid]}
    await tenant.set_policy("", gates={})
    await tenant.rounds()
    release = await tenant.release(uid)
    assert (release["status"], await tenant.offered(uid)) == ("held", [])


@pytest.mark.parametrize(
    ("operation", "fields", "offered"),
    [
        ("promote_version", {"ring": "broad"}, {"pilot": "2.0", "broad": "2.0", "everyone": ""}),
        ("hold_version", {"reason": "It crashes."}, {"pilot": "1.0", "broad": "", "everyone": ""}),
        ("roll_back_version", {}, {"pilot": "1.0", "broad": "", "everyone": ""}),
    ],
)
async def test_a_step_shows_what_each_ring_would_get(
    tenant: ReleaseTenant, operation: str, fields: dict[str, str], offered: dict[str, str]
) -> None:
    await tenant.set_policy()
    await tenant.publish("1.0")
    uid = await tenant.publish("2.0")
    before = await tenant.release(uid)
    answer = await tenant.call(tenant.bob, operation, uid, **fields, preview="true")
    assert (answer.status, answer.body["Message"]) == (200, "Nothing was changed.")
    assert answer.body["offered"] == offered
    assert await tenant.release(uid) == before


async def test_a_preview_of_a_step_is_refused_like_the_step(tenant: ReleaseTenant, waiting: str) -> None:
    answer = await tenant.call(tenant.bob, "promote_version", waiting, ring="everyone", preview="true")
    assert (answer.status, answer.body["code"]) == (409, "gate_waiting")
