"""A service that dies after each of its steps in turn, while a story is told that comes past all of them."""

from contextlib import suppress

from tests.system.fleet import Fleet
from tests.system.invariants import State, violations
from tests.system.results import Outcome
from tests.system.steps import Steps
from tests.system.story import Interrupted, Story
from tests.waiting import until

SETTLED_WITHIN = 60.0  # seconds
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
        steps.die_after(step)
        story = await Story.begin(fleet, steps, step)
        with suppress(Interrupted):
            await story.tell(insisting=insisting)
        await fleet.ready()
        outcome.times += 1
        if not steps.died:
            outcome.violations.append(f"nothing came to {step}")
        stories.append(story)
    outcome.violations += await _left(fleet, stories)
    return outcome


async def _all_steps(fleet: Fleet, steps: Steps) -> list[str]:
    """The steps of the story and of what settles after it."""
    steps.count()
    story = await Story.begin(fleet, steps, "all goes well")
    await story.tell(insisting=False)
    left = await _left(fleet, [story])
    assert not left, left
    return steps.counted()


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
        await until(nothing_left, patience=SETTLED_WITHIN)
    return left
