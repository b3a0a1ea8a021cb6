"""The way of versions through rings in any order of operations, compared with a short model."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from common.auth.internal_tokens import Kind
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.services.releases import RINGS, ReleaseTenant

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


class Releases(RuleBasedStateMachine):
    """A tenant of a running service for each example."""

    runner: ClassVar[asyncio.Runner]
    catalog: ClassVar[Catalog]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.tenant = ReleaseTenant(self.catalog, make_caller(username="ada"))
        self.run(self.catalog.add_package(self.tenant.ada))
        self.run(self.tenant.set_policy(gates=GATES))
        self.models: dict[str, Model] = {}
        self.today = 0

    def run(self, work: Coroutine[Any, Any, Got]) -> Got:
        return self.runner.run(work)

    def choose(self, number: int) -> tuple[str, Model]:
        uids = list(self.models)
        uid = uids[number % len(uids)]
        return uid, self.models[uid]

    def send(self, user: str, operation: str, uid: str, **data: str) -> Answer:
        return self.run(self.tenant.call(replace(self.tenant.ada, username=user), operation, uid, **data))

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

    @invariant()
    def clients_see_what_their_ring_is_offered(self) -> None:
        Releases.steps += 1
        releases = self.run(self.tenant.releases()) if self.models else {}
        for uid, model in self.models.items():
            stage = RINGS[len(model.entered) - 1] if model.entered else ""
            assert (releases[uid]["status"], releases[uid]["stage"]) == (model.status, stage)
            for row in releases[uid]["rings"]:
                assert row["offered"] == model.offered(row["ring"])
            assert self.run(self.tenant.is_withheld(uid)) == (model.status in {"held", "rolled_back"})
        ring = RINGS[Releases.steps % len(RINGS)]
        client = make_caller(self.tenant.ada.tenant, kind=Kind.CLIENT, client_id="c1", username="", ring=ring)
        seen = {uid for package in self.run(self.catalog.packages(client)) for uid in package["VERSIONS_UID"]}
        assert seen == {uid for uid, model in self.models.items() if model.offered(ring)}, ring


@pytest.mark.parametrize("examples", [4, pytest.param(16, marks=pytest.mark.full)])
def test_versions_follow_the_rules_in_any_order(mongo_url: str, redis_url: str, examples: int) -> None:
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        Releases.runner, Releases.steps = runner, 0
        Releases.catalog = runner.run(stack.enter_async_context(serving_catalog(mongo_url, redis_url)))
        try:
            run_state_machine_as_test(Releases, settings=settings)
        finally:
            runner.run(stack.aclose())
    assert Releases.steps > 20 * examples
