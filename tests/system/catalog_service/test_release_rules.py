"""The way of versions through rings in any order of operations, compared with a short model."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from common.mongo import open_database
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.catalog import serving_catalog
from tests.support.services.releases import RINGS, ReleaseTenant
from tests.support.system.release_tenant import ReleaseSystem
from tests.support.system.services import all_services

Got = TypeVar("Got")
NEEDED, DAYS = {"pilot": 1, "broad": 0, "everyone": 2}, {"pilot": 0, "broad": 0, "everyone": 7}
GATES = {ring: {"approvals": NEEDED[ring], "age_days": DAYS[ring]} for ring in RINGS}
STOPPED = {"pause_version": "paused", "hold_version": "held", "roll_back_version": "rolled_back"}
USERS, VERSIONS, RING = st.sampled_from(["ada", "bob", "eve"]), st.integers(0, 3), st.sampled_from(RINGS)


@dataclass
class Model:
    """A version: the day on which it entered each ring, its approvers, and its status."""

    entered: dict[str, int] = field(default_factory=dict)
    approvers: set[str] = field(default_factory=set)
    status: str = "active"

    def is_open(self, ring: str, today: int) -> bool:
        since = self.entered.get(RINGS[RINGS.index(ring) - 1], today)
        return len(self.approvers - {"ada"}) >= NEEDED[ring] and today - since >= DAYS[ring]

    def promote(self, ring: str, today: int) -> bool:
        if self.status in {"held", "rolled_back"}:
            return False
        before = dict(self.entered)
        for each in RINGS[len(before) : RINGS.index(ring) + 1]:
            if self.status != "active" or not self.is_open(each, today):
                self.entered = before
                return False
            self.entered[each] = today
        return True

    def go_on(self, today: int) -> None:
        """Enter the rings that a version enters by itself."""
        for ring in RINGS[len(self.entered) :]:
            if (ring != "pilot" and not DAYS[ring]) or not self.promote(ring, today):
                return

    def offered(self, ring: str) -> bool:
        return self.status in {"active", "paused"} and ring in self.entered


@dataclass(frozen=True)
class Setup:
    """Running services; each example has its own tenant."""

    runner: asyncio.Runner
    new_tenant: Callable[[], Coroutine[Any, Any, ReleaseTenant | ReleaseSystem]]


class Releases(RuleBasedStateMachine):
    setup: ClassVar[Setup]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.tenant = self.run(self.setup.new_tenant())
        self.models: dict[str, Model] = {}
        self.client_ring, self.today = "everyone", 0

    def run(self, work: Coroutine[Any, Any, Got]) -> Got:
        return self.setup.runner.run(work)

    def choose(self, number: int) -> tuple[str, Model]:
        uids = list(self.models)
        uid = uids[number % len(uids)]
        return uid, self.models[uid]

    def send(self, user: str, operation: str, uid: str, **data: str) -> Answer:
        return self.run(self.tenant.send_as(user, operation, uid, **data))

    @precondition(lambda self: len(self.models) < 4)
    @rule()
    def publish(self) -> None:
        uid = self.run(self.tenant.publish(f"{len(self.models) + 1}.0"))
        self.models[uid] = Model()

    @precondition(lambda self: self.models)
    @rule(number=VERSIONS, user=USERS)
    def approve(self, number: int, user: str) -> None:
        uid, model = self.choose(number)
        answer = self.send(user, "approve_version", uid)
        assert answer.status == (403 if user == "ada" else 200)
        if user != "ada":
            model.approvers.add(user)
            model.go_on(self.today)

    @precondition(lambda self: self.models)
    @rule(number=VERSIONS, ring=RING, user=USERS)
    def promote(self, number: int, ring: str, user: str) -> None:
        uid, model = self.choose(number)
        answer = self.send(user, "promote_version", uid, ring=ring)
        assert answer.status == (200 if model.promote(ring, self.today) else 409), answer.body
        model.go_on(self.today)

    @precondition(lambda self: self.models)
    @rule(number=VERSIONS, operation=st.sampled_from([*STOPPED]), user=USERS)
    def stop(self, number: int, operation: str, user: str) -> None:
        uid, model = self.choose(number)
        fields = {} if operation == "pause_version" else {"reason": "a reason"}
        answer = self.send(user, operation, uid, **fields)
        is_refused = operation == "pause_version" and model.status not in {"active", "paused"}
        assert answer.status == (409 if is_refused else 200), answer.body
        if not is_refused:
            model.status = STOPPED[operation]
        if operation == "roll_back_version":
            model.entered = {}

    @precondition(lambda self: self.models)
    @rule(number=VERSIONS, user=USERS)
    def resume(self, number: int, user: str) -> None:
        uid, model = self.choose(number)
        assert self.send(user, "resume_version", uid).status == 200
        model.status = "active"
        model.go_on(self.today)

    @rule(days=st.integers(1, 8))
    def time_passes(self, days: int) -> None:
        self.today += days
        self.run(self.tenant.days_pass(days))
        for model in self.models.values():
            model.go_on(self.today)

    @rule(ring=RING)
    def client_changes_ring(self, ring: str) -> None:
        self.client_ring = ring
        if isinstance(self.tenant, ReleaseSystem):
            self.run(self.tenant.move_client("mover", ring))

    @invariant()
    def clients_see_what_their_ring_is_offered(self) -> None:
        Releases.steps += 1
        releases = self.run(self.tenant.releases()) if self.models else {}
        for uid, model in self.models.items():
            release = releases[uid]
            stage = RINGS[len(model.entered) - 1] if model.entered else ""
            assert (release["status"], release["stage"]) == (model.status, stage)
            for row in release["rings"]:
                assert row["offered"] == model.offered(row["ring"])
            assert self.run(self.tenant.is_withheld(uid)) == (model.status in {"held", "rolled_back"})
        if isinstance(self.tenant, ReleaseSystem):
            next_ring = RINGS[Releases.steps % len(RINGS)]
            for client, ring in {next_ring: next_ring, "mover": self.client_ring}.items():
                models = enumerate(self.models.values(), start=1)
                offered = {f"{number}.0" for number, model in models if model.offered(ring)}
                seen = self.run(self.tenant.seen_by(client))
                assert seen == dict.fromkeys(seen, offered), (client, ring)


def run_machine(setup: Setup, examples: int) -> None:
    Releases.setup, Releases.steps = setup, 0
    run_state_machine_as_test(
        Releases,
        settings=hypothesis.settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
    assert Releases.steps > 20 * examples


@pytest.mark.parametrize("examples", [4, pytest.param(16, marks=pytest.mark.full)])
def test_versions_follow_the_rules_in_any_order(
    mongo_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    for name in ("SWEEP_PAUSE", "RELEASE_PAUSE", "INFECTED_PAUSE"):
        monkeypatch.setattr(f"catalog_service.app.{name}", 3600)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        catalog = runner.run(stack.enter_async_context(serving_catalog(mongo_url, redis_url)))

        async def new_tenant() -> ReleaseTenant:
            tenant = ReleaseTenant(catalog, make_caller(username="ada"))
            await catalog.add_package(tenant.ada)
            await tenant.set_policy(gates=GATES)
            return tenant

        try:
            run_machine(Setup(runner, new_tenant), examples)
        finally:
            runner.run(stack.aclose())


@pytest.mark.full
def test_clients_read_what_their_ring_is_offered_in_any_order(
    tmp_path: Path, mongo_url: str, redis_url: str, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog_service.app.RELEASE_PAUSE", 0.02)
    # Other tests of this process may run services with these databases.
    monkeypatch.setattr("tests.support.system.services.SINGLE_TENANT", f"single{uuid4().hex[:8]}")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        enter = stack.enter_async_context
        services = runner.run(enter(all_services(tmp_path, mongo_url, redis_url, rabbitmq_url)))
        database = runner.run(enter(open_database(mongo_url, "catalog")))
        try:
            run_machine(Setup(runner, lambda: ReleaseSystem.create(services, database, RINGS, GATES)), 5)
        finally:
            runner.run(stack.aclose())
