"""Kills a service after each of its steps in turn, during a scenario that covers all steps."""

import re
from contextlib import suppress

from tests.support.faults.invariants import State, violations
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.tenant_scenario import RequestAbandoned, TenantScenario
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.wait import until

SETTLE_TIMEOUT = 60.0  # seconds
ATTEMPTS = 5  # scenarios per step: steps may change their order, and a busy machine may fail a request
UNORDERED_STEPS = re.compile(
    r"upload_service\.inspection\.|.* of inspect "
)  # A file may be deleted before its inspection.
ONE_DAY = 24 * 3600 + 61  # seconds, and a little more


async def kill_at_every_step(cluster: Cluster, steps: StepControl, service: str, *, retries: bool) -> Outcome:
    """Kill the only replica of a service once after each of its `steps`.

    A client that retries gets the same answers as without a crash. Without retries, the services finish or undo
    incomplete work themselves within a day.
    """
    client = "the client retries" if retries else "the client gives up"
    outcome = Outcome(f"{service} killed at each of its steps, {client}")
    scenarios = []
    for step in await _all_steps(cluster, steps):
        for _ in range(ATTEMPTS):
            steps.die_after(step)
            scenario = await TenantScenario.create(cluster, steps, step)
            with suppress(RequestAbandoned):
                await scenario.run(retries=retries)
            await cluster.ready()
            scenarios.append(scenario)
            if steps.died:
                outcome.times += 1
                break
        else:
            steps.disarm()
            outcome.violations.append(f"no scenario reached {step}")
    outcome.violations += await _remaining_problems(cluster, scenarios)
    return outcome


async def _all_steps(cluster: Cluster, steps: StepControl) -> list[str]:
    """The steps that occur in every run. Background work of a service adds others."""
    recorded = []
    for _ in range(3):
        scenario = await TenantScenario.create(cluster, steps, "no crash")
        steps.start_counting()
        await scenario.run(retries=False)
        await wait_until_announced(cluster, scenario.api.tenant_id)
        recorded.append(steps.stop_counting())
    common = set.intersection(*map(set, recorded))
    return [step for step in recorded[0] if step in common and not UNORDERED_STEPS.match(step)]


async def _remaining_problems(cluster: Cluster, scenarios: list[TenantScenario]) -> list[str]:
    """Age the data by a day. Returns the problems that the services do not fix, each as a sentence."""
    for scenario in scenarios:
        await cluster.age_tenant(scenario.api.tenant_id, ONE_DAY)
    remaining: list[str] = []

    async def all_settled() -> bool:
        remaining.clear()
        for scenario in scenarios:
            state = await State.read(cluster.mongo, scenario.api.tenant_id)
            problems = state.unsettled() + state.duplicates() + await violations(cluster, [scenario.api.tenant_id])
            remaining.extend(f"after {scenario.title}: {problem}" for problem in problems)
        return not remaining

    with suppress(TimeoutError):
        await until(all_settled, timeout=SETTLE_TIMEOUT)
    return remaining
