"""Each step of a change fails once, before or after its effect. The loop, or the same call again, finishes it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorCollection
from pymongo.errors import AutoReconnect

from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant, checks
from tests.support.step_faults import Fault, Steps
from tests.support.tables import every_cell

GATES = {"pilot": {"scan": True}, "broad": {"approvals": 1}}
MOTOR = ("find_one", "update_one", "update_many", "find_one_and_update", "replace_one")


@dataclass(frozen=True)
class Change:
    """An operation on a version that is in the ring `pilot` and approved, and what holds when it is done."""

    operation: str
    data: dict[str, str]
    offered: list[str]
    status: str = "active"
    prepared: tuple[str, dict[str, str]] | None = None


CHANGES = [
    Change("promote_version", {"ring": "broad"}, ["pilot", "broad"]),
    Change("hold_version", {"reason": "no"}, [], "held"),
]
MORE_CHANGES = [
    Change("promote_version", {"ring": "everyone"}, ["pilot", "broad", "everyone"]),
    Change("pause_version", {}, ["pilot"], "paused"),
    Change("roll_back_version", {}, [], "rolled_back"),
    Change("resume_version", {}, ["pilot"], "active", ("hold_version", {"reason": "no"})),
    Change("resume_version", {}, ["pilot"], "active", ("roll_back_version", {})),
]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """All calls to MongoDB, Redis and other services."""
    steps = Steps()
    for name in MOTOR:
        steps.watch(monkeypatch, AsyncIOMotorCollection, name, AutoReconnect("a fault of a test"))
    steps.watch(monkeypatch, ServiceClient, "json", Unavailable("a fault of a test"))
    steps.watch_redis(monkeypatch)
    return steps


async def new_tenant(catalog: Catalog) -> ReleaseTenant:
    tenant = ReleaseTenant(catalog, make_caller(username="ada"))
    await catalog.add_package(tenant.ada)
    await tenant.set_policy(gates=GATES)
    return tenant


async def prepare(catalog: Catalog, change: Change) -> tuple[ReleaseTenant, str]:
    tenant = await new_tenant(catalog)
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    await tenant.done(tenant.bob, "approve_version", uid)
    if change.prepared:
        await tenant.done(tenant.bob, change.prepared[0], uid, **change.prepared[1])
    await tenant.rounds()
    return tenant, uid


async def fail_each_step(steps: Steps, run: Callable[[str], Awaitable[Any]]) -> None:
    """Run once without a fault, and then once with each fault at each step."""
    await run("no fault")
    count = steps.count
    assert count > 3
    with every_cell() as cell:
        for fault in Fault:
            for number in range(1, count + 1):
                steps.failing_step, steps.fault = number, fault
                with cell(number, fault):
                    await run(f"{fault} at step {number}")


def settled(tenant: ReleaseTenant, uid: str, document: dict[str, Any]) -> bool:
    """Whether nothing is left to do for the loop."""
    release, withdrawn = document["release"], document["stage"]["status"] in {"held", "rolled_back"}
    told = tenant.catalog.stubs.withheld.get(uid, (0, False))[1] is withdrawn
    return told and not release["is_untold"] and not release["unaudited"]


async def document_of(tenant: ReleaseTenant, uid: str) -> dict[str, Any]:
    key = {"tenant_id": tenant.ada.tenant_id, "uid": uid}
    document = await tenant.catalog.database["versions"].find_one(key)
    assert document
    return document


@pytest.mark.parametrize(
    "change",
    [*CHANGES, *(pytest.param(change, marks=pytest.mark.full) for change in MORE_CHANGES)],
    ids=lambda change: " ".join([change.operation, *change.data.values(), *(change.prepared or ())[:1]]),
)
async def test_a_change_is_done_or_not_and_can_be_repeated(catalog: Catalog, steps: Steps, change: Change) -> None:
    async def run(_: str) -> None:
        tenant, uid = await prepare(catalog, change)
        before = await tenant.offered(uid)

        async def send() -> bool:
            return (await tenant.call(tenant.bob, change.operation, uid, **change.data)).status == 200

        done = await steps.run(send)
        offered = await tenant.offered(uid)
        assert offered in (before, change.offered)
        later = [] if change.status == "active" else change.offered  # The loop lets it into the first ring.
        assert not done or offered in (change.offered, later)
        withheld = catalog.stubs.withheld.get(uid, (0, False))[1]
        assert not done or withheld is (offered == [])
        steps.failing_step = 0
        await tenant.rounds(3)  # without the caller
        assert settled(tenant, uid, await document_of(tenant, uid))
        assert await tenant.offered(uid) in ([change.offered] if done else [before, change.offered])
        await tenant.done(tenant.bob, change.operation, uid, **change.data)
        await tenant.rounds()
        assert await tenant.offered(uid) == change.offered
        assert (await tenant.release(uid))["status"] == change.status
        assert settled(tenant, uid, await document_of(tenant, uid))

    await fail_each_step(steps, run)


@pytest.mark.full
async def test_a_publication_passes_no_gate_by_a_failure(catalog: Catalog, steps: Steps) -> None:
    async def run(_: str) -> None:
        tenant = await new_tenant(catalog)
        file = catalog.stubs.add_file()

        async def send() -> bool:
            return (await catalog.post_version(tenant.ada, server_filename=file)).status == 201

        await steps.run(send)
        steps.failing_step = 0
        await catalog.post_version(tenant.ada, server_filename=file)
        [document] = await catalog.database["versions"].find({"tenant_id": tenant.ada.tenant_id}).to_list(None)
        uid = document["uid"]
        assert await tenant.offered(uid) == []
        assert document["release"]["publisher"] == "ada"
        catalog.stubs.checks[uid] = checks()
        await tenant.rounds()
        assert await tenant.offered(uid) == ["pilot"]

    await fail_each_step(steps, run)


async def test_a_round_of_the_loop_can_fail_anywhere(catalog: Catalog, steps: Steps) -> None:
    async def run(_: str) -> None:
        tenant = await new_tenant(catalog)
        uid = await tenant.publish()
        catalog.stubs.checks[uid] = checks()

        async def round_of_the_loop() -> bool:
            try:
                await catalog.releases.run_due()
            except AutoReconnect:
                return False
            return True

        key = {"tenant_id": tenant.ada.tenant_id, "uid": uid}
        await catalog.database["versions"].update_one(key, {"$currentDate": {"release.due": True}})
        await steps.run(round_of_the_loop)
        assert await tenant.offered(uid) in ([], ["pilot"])
        steps.failing_step = 0
        await tenant.rounds(3)
        assert await tenant.offered(uid) == ["pilot"]
        assert settled(tenant, uid, await document_of(tenant, uid))
        assert [operation for operation, _ in tenant.audited(uid)] == ["check_gate", "promote_version"]

    await fail_each_step(steps, run)
