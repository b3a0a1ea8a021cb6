"""Changes at the same time, at two replicas with one database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from catalog_service.catalog.revision_store import MongoRevisions
from catalog_service.model.installers import InstallerFile
from catalog_service.model.versions import version_of
from catalog_service.releases.gates import Gates, Policy
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.services.releases import ReleaseTenant, checks
from tests.support.services.stand_ins import DIGEST

GATES = {"pilot": {"scan": True}, "broad": {"approvals": 6}}


@pytest.fixture(scope="module")
async def served_replica(served_catalog: Catalog, mongo_url: str, redis_url: str) -> AsyncIterator[Catalog]:
    """A second replica, which has its own stub of the other services."""
    async with serving_catalog(mongo_url, redis_url, database=served_catalog.settings.database) as served:
        yield served


@pytest.fixture
def replicas(tenant: ReleaseTenant, served_replica: Catalog) -> tuple[ReleaseTenant, ReleaseTenant]:
    """The same tenant at both replicas."""
    served_replica.stubs.reset()
    return tenant, ReleaseTenant(served_replica, tenant.ada)


async def test_approvals_at_two_replicas_are_all_counted(replicas: tuple[ReleaseTenant, ReleaseTenant]) -> None:
    first, second = replicas
    await first.set_policy(gates={"broad": {"approvals": 4}})
    uid = await first.publish()
    people = [replace(first.ada, username=f"user-{number}") for number in range(4)]
    pairs = zip(people, (first, second, first, second), strict=True)
    await asyncio.gather(*(replica.done(person, "approve_version", uid) for person, replica in pairs))
    gate = await first.gate(uid, "broad", "approval")
    assert (gate["state"], len(gate["by"])) == ("passed", 4)


async def test_two_loops_let_a_version_in_once(replicas: tuple[ReleaseTenant, ReleaseTenant]) -> None:
    first, second = replicas
    await first.set_policy(gates=GATES)
    for number in range(5):
        uid = await first.publish(f"{number}.0")
        for replica in replicas:
            replica.catalog.stubs.checks[uid] = checks()
        await asyncio.gather(first.rounds(3), second.rounds(3))
        events = [event["event"] for event in (await first.release(uid))["history"]]
        assert events == ["entered", "gate_passed"]
        audited = {**first.catalog.stubs.audited, **second.catalog.stubs.audited}  # by the ids of the entries
        assert len([entry for entry in audited.values() if entry["target"]["uid"] == uid]) == 2


async def test_a_hold_wins_over_a_promotion_at_the_same_time(replicas: tuple[ReleaseTenant, ReleaseTenant]) -> None:
    first, second = replicas
    await first.set_policy()
    for number in range(5):
        uid = await first.publish(f"{number}.0")
        await asyncio.gather(
            first.done(first.bob, "hold_version", uid, reason="no"),
            second.call(second.eve, "promote_version", uid, ring="everyone"),
            second.rounds(1),
        )
        assert await first.offered(uid) == []
        assert is_withheld(replicas, uid)


async def test_a_hold_and_a_resume_leave_the_file_as_the_record(replicas: tuple[ReleaseTenant, ReleaseTenant]) -> None:
    first, second = replicas
    uid = await first.publish()
    for _ in range(5):
        await asyncio.gather(
            first.done(first.bob, "hold_version", uid, reason="no"), second.done(second.eve, "resume_version", uid)
        )
        await first.rounds(2)
        held = (await first.release(uid))["status"] == "held"
        assert is_withheld(replicas, uid) is held
        await first.done(first.bob, "resume_version", uid)


def is_withheld(replicas: tuple[ReleaseTenant, ReleaseTenant], uid: str) -> bool:
    """Whether the call with the highest fence withholds the file."""
    return max(replica.catalog.stubs.withheld.get(uid, (0, False)) for replica in replicas)[1]


async def test_a_version_that_is_activated_during_a_policy_edit_is_in_no_ring(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    async def keep_pending() -> None:
        raise ConnectionResetError

    catalog.stubs.during = keep_pending
    await catalog.post_version(tenant.ada)
    [document] = await catalog.database["versions"].find({"tenant_id": tenant.ada.tenant_id}).to_list(None)
    assert document["state"] == "pending"
    await catalog.store.policies.edit(tenant.ada.tenant_id, lambda _: Policy(rings=("pilot", "everyone")))

    # The service read the policy before.
    await catalog.store.versions.activate(tenant.ada.tenant_id, version_of(document), InstallerFile(1, DIGEST))

    assert await tenant.offered(document["uid"]) == []
    await tenant.rounds()
    assert await tenant.offered(document["uid"]) == ["pilot"]


async def test_a_decision_by_an_earlier_policy_is_not_stored(
    tenant: ReleaseTenant, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    find, edits = catalog.store.policies.find, [{"broad": Gates(approvals=1)}]

    async def find_before_an_edit(tenant_id: str) -> Policy:
        policy = await find(tenant_id)
        if edits:
            await catalog.store.policies.edit(tenant_id, lambda _: Policy(rings=policy.rings, gates=edits.pop()))
        return policy

    monkeypatch.setattr(catalog.store.policies, "find", find_before_an_edit)
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="broad")
    assert (answer.status, answer.body.get("code")) == (409, "gate_waiting")
    assert await tenant.offered(uid) == ["pilot"]


async def test_rings_that_are_removed_leave_nobody_without_versions(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.set_policy("")
    await tenant.rounds()
    assert await tenant.offered(uid) == ["everyone"]
    await tenant.set_policy("a,b")
    await tenant.rounds()
    assert await tenant.offered(uid) == ["a", "b"]  # It has entered the last ring.


async def test_a_version_in_a_ring_that_becomes_the_last_is_complete(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "promote_version", uid, ring="broad")
    await tenant.set_policy("pilot,broad")
    await tenant.rounds()
    await tenant.set_policy("pilot,broad,everyone")
    assert await tenant.offered(uid) == ["pilot", "broad", "everyone"]


async def test_gates_that_are_edited_during_an_edit_of_the_rings_are_kept(
    tenant: ReleaseTenant, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tenant.set_policy()
    record_change, gates = MongoRevisions.record_change, [{"everyone": {"approvals": 2}}]

    def record_after_another_edit(*values: Any) -> AbstractAsyncContextManager[None]:
        @asynccontextmanager
        async def change() -> AsyncIterator[None]:
            if gates:
                await tenant.set_policy(None, gates=gates.pop())
            async with record_change(*values):
                yield

        return change()

    monkeypatch.setattr(MongoRevisions, "record_change", record_after_another_edit)
    answer = await tenant.set_policy("pilot,everyone")

    policy = await catalog.store.policies.find(tenant.ada.tenant_id)
    assert (policy.rings, [*policy.gates]) == (("pilot", "everyone"), ["everyone"])
    assert answer["gates"] == {"everyone": {"approvals": 2}}
