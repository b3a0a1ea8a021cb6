"""A service that dies after each of its steps in turn, while a story is told that comes past all of them."""

from contextlib import suppress

from tests.support.faults.invariants import State, violations
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.tenant_scenario import RequestAbandoned, TenantScenario
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.wait import until

SETTLE_TIMEOUT = 60.0  # seconds
ATTEMPTS = 5  # stories, for a step that may come in another order than before, or a client whom a busy machine let down
UNORDERED_STEPS = "upload_service.inspection."  # A file may be deleted before its turn to be read comes.
ONE_DAY = 24 * 3600 + 61  # seconds, and a little more


async def kill_at_every_step(cluster: Cluster, steps: StepControl, service: str, *, insisting: bool) -> Outcome:
    """The service, of which only the replica with these `steps` runs, dies once at each of them.

    An insisting client sends again what was not answered, and is answered as on a day without crash. What another one
    leaves halfway is finished or undone by the services themselves, once a day has passed.
    """
    client = "the client insists" if insisting else "the client gives up"
    outcome = Outcome(f"{service} killed at each of its steps, {client}")
    stories = []
    for step in await _all_steps(cluster, steps):
        for _ in range(ATTEMPTS):
            steps.die_after(step)
            story = await TenantScenario.create(cluster, steps, step)
            with suppress(RequestAbandoned):
                await story.run(insisting=insisting)
            await cluster.ready()
            stories.append(story)
            if steps.died:
                outcome.times += 1
                break
        else:
            steps.disarm()
            outcome.violations.append(f"nothing came to {step}")
    outcome.violations += await _remaining_problems(cluster, stories)
    return outcome


async def _all_steps(cluster: Cluster, steps: StepControl) -> list[str]:
    """The steps of the story: those that come whenever it is told, for a service also works of its own accord."""
    counted = []
    for _ in range(2):
        story = await TenantScenario.create(cluster, steps, "all goes well")
        steps.start_counting()
        await story.run(insisting=False)
        await wait_until_announced(cluster, story.api.tenant_id)
        counted.append(steps.stop_counting())
    return [step for step in counted[0] if step in counted[1] and not step.startswith(UNORDERED_STEPS)]


async def _remaining_problems(cluster: Cluster, stories: list[TenantScenario]) -> list[str]:
    """Let a day pass; what is wrong or halfway still when the services had their time, each as a sentence."""
    for story in stories:
        await cluster.age_tenant(story.api.tenant_id, ONE_DAY)
    left: list[str] = []

    async def nothing_left() -> bool:
        left.clear()
        for story in stories:
            state = await State.read(cluster.mongo, story.api.tenant_id)
            problems = state.unsettled() + state.duplicates() + await violations(cluster, [story.api.tenant_id])
            left.extend(f"after {story.title}: {problem}" for problem in problems)
        return not left

    with suppress(TimeoutError):
        await until(nothing_left, timeout=SETTLE_TIMEOUT)
    return left
