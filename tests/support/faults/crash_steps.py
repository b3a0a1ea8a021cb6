"""Kills a service after each of its steps in turn, each time during a scenario of its own."""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tests.support.faults.invariants import State, violations
from tests.support.faults.results import Outcome
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl, single_replica
from tests.support.system.services import Api
from tests.support.wait import until

SETTLE_TIMEOUT = 60.0  # seconds
ATTEMPTS = 3  # scenarios of a step: steps may change their order
ONE_DAY = 24 * 3600 + 61  # seconds, and a little more
# A file may be deleted before its inspection, and infected files are looked for every 15 seconds.
UNORDERED_STEPS = re.compile(r"upload_service\.inspection\.|.* of inspect |.*:UploadService\.infected ")


class Scenario(Protocol):
    """The requests of a tenant during which a service is killed."""

    @property
    def api(self) -> Api: ...

    async def run(self) -> list[str]:
        """Send the requests. Returns what is wrong, each as a sentence, like `check`."""
        ...

    async def check(self) -> list[str]:
        """The problems when the service runs again, each as a sentence."""
        ...


Create = Callable[[StepControl], Awaitable[Scenario]]


def sample_steps(steps: Iterable[str], times: int) -> list[str]:
    """Choose at most `times` repetitions of each kind of step, from the last to the first."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        kinds[step.rpartition(" #")[0]].append(step)
    chosen = []
    for same in kinds.values():
        count = min(times, len(same))
        chosen += [same[-1 - index * (len(same) - 1) // max(1, count - 1)] for index in range(count)]
    return chosen


async def kill_at_steps(
    cluster: Cluster,
    service: str,
    outcome: Outcome,
    *acts: Create,
    age: float,
    choose: Callable[[list[str]], Iterable[str]] = iter,
    recordings: int = 2,
    patches: Mapping[str, Any] | None = None,
) -> Outcome:
    """Kill the only replica of a service after the steps that `choose` takes from those of each act.

    Steps that an earlier act has, too, are left out. At the end the data is `age` seconds older, and nothing that was
    interrupted may be left.
    """
    titles: dict[str, str] = {}
    seen: set[str] = set()
    async with single_replica(cluster, service, patches=patches) as steps:
        for create in acts:
            recorded = await _record(steps, create, recordings)
            for step in choose([step for step in recorded if step not in seen]):
                for _ in range(ATTEMPTS):
                    scenario = await create(steps)
                    titles[scenario.api.tenant_id] = step
                    steps.die_after(step)
                    problems, died = await scenario.run(), steps.died
                    steps.disarm()
                    await cluster.ready()
                    outcome.violations += [f"{step}: {problem}" for problem in problems + await scenario.check()]
                    if died:
                        outcome.times += 1
                        break
                else:
                    outcome.missed.append(step)
            seen.update(recorded)
        outcome.violations += await _remaining_problems(cluster, titles, age)
    return outcome


async def _record(steps: StepControl, create: Create, recordings: int) -> list[str]:
    """The steps that occur in every run. Background work of a service adds others."""
    recorded = []
    for _ in range(recordings):
        scenario = await create(steps)
        steps.start_counting()
        assert await scenario.run() == []
        recorded.append(steps.stop_counting())
    common = set.intersection(*map(set, recorded))
    return [step for step in recorded[0] if step in common and not UNORDERED_STEPS.match(step)]


async def _remaining_problems(cluster: Cluster, titles: Mapping[str, str], age: float) -> list[str]:
    """The problems that the services do not fix in data of this age, each as a sentence."""
    for tenant_id in titles:
        await cluster.age_tenant(tenant_id, age)
    remaining: dict[str, list[str]] = {tenant_id: [] for tenant_id in titles}

    async def all_settled() -> bool:
        for tenant_id in list(remaining):
            state = await State.read(cluster.mongo, tenant_id)
            # A complete file without a version is kept for a day.
            unsettled = [text for text in state.unsettled() if age >= ONE_DAY or not text.endswith("is complete")]
            remaining[tenant_id] = unsettled + state.duplicates() + await violations(cluster, [tenant_id])
            if not remaining[tenant_id]:
                del remaining[tenant_id]
        return not remaining

    with suppress(TimeoutError):
        await until(all_settled, timeout=SETTLE_TIMEOUT)
    return [f"after {titles[tenant_id]}: {text}" for tenant_id, texts in remaining.items() for text in texts]
