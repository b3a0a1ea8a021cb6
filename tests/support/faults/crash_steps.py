"""A service that dies after each of its steps in turn, while a story is told that comes past all of them."""

from contextlib import suppress

from tests.support.faults.invariants import State, violations
from tests.support.faults.publishers import at_rest
from tests.support.faults.results import Outcome
from tests.support.faults.tenant_scenario import Interrupted, Story
from tests.support.processes.cluster import Fleet
from tests.support.processes.failpoint_control import Steps
from tests.support.wait import until

SETTLED_WITHIN = 60.0  # seconds
TRIES = 5  # stories, for a step that may come in another order than before, or a client whom a busy machine let down
BY_CHANCE = "upload_service.inspection."  # A file may be deleted before its turn to be read comes.
A_DAY = 24 * 3600 + 61  # seconds, and a little more


async def dead_at_every_step(fleet: Fleet, steps: Steps, service: str, *, insisting: bool) -> Outcome:
    """The service, of which only the replica with these `steps` runs, dies once at each of them.

    An insisting client sends again what was not answered, and is answered as on a day without crash. What another one
    leaves halfway is finished or undone by the services themselves, once a day has passed.
    """
    client = "the client insists" if insisting else "the client gives up"
    outcome = Outcome(f"{service} killed at each of its steps, {client}")
    stories = []
    for step in await _all_steps(fleet, steps):
        for _ in range(TRIES):
            steps.die_after(step)
            story = await Story.begin(fleet, steps, step)
            with suppress(Interrupted):
                await story.tell(insisting=insisting)
            await fleet.ready()
            stories.append(story)
            if steps.died:
                outcome.times += 1
                break
        else:
            steps.disarm()
            outcome.violations.append(f"nothing came to {step}")
    outcome.violations += await _left(fleet, stories)
    return outcome


async def _all_steps(fleet: Fleet, steps: Steps) -> list[str]:
    """The steps of the story: those that come whenever it is told, for a service also works of its own accord."""
    counted = []
    for _ in range(2):
        story = await Story.begin(fleet, steps, "all goes well")
        steps.count()
        await story.tell(insisting=False)
        await at_rest(fleet, story.api.tenant_id)
        counted.append(steps.counted())
    return [step for step in counted[0] if step in counted[1] and not step.startswith(BY_CHANCE)]


async def _left(fleet: Fleet, stories: list[Story]) -> list[str]:
    """Let a day pass; what is wrong or halfway still when the services had their time, each as a sentence."""
    for story in stories:
        await fleet.age(story.api.tenant_id, A_DAY)
    left: list[str] = []

    async def nothing_left() -> bool:
        left.clear()
        for story in stories:
            state = await State.read(fleet.mongo, story.api.tenant_id)
            problems = state.unsettled() + state.doubled() + await violations(fleet, [story.api.tenant_id])
            left.extend(f"after {story.title}: {problem}" for problem in problems)
        return not left

    with suppress(TimeoutError):
        await until(nothing_left, timeout=SETTLED_WITHIN)
    return left
