"""A service dies after each step of a story that uploads, creates and deletes (F6): what is asked again goes on."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.system.fleet import Fleet
from tests.system.invariants import State, violations
from tests.system.steps import Steps, add_failing
from tests.system.story import Interrupted, Story
from tests.waiting import until

SERVICES = ("upload_service", "catalog_service")
SETTLED_WITHIN = 60.0  # seconds
A_DAY = 24 * 3600 + 61  # seconds, and a little more


@pytest.fixture(scope="module")
async def mortal(running_fleet: Fleet) -> AsyncIterator[dict[str, Steps]]:
    """upload_service and catalog_service, one replica each, which die where they are told to."""
    for service in SERVICES:
        for replica in list(running_fleet.replicas[service]):
            await running_fleet.remove(replica)
    failing = {name: await add_failing(running_fleet, name) for name in SERVICES}
    yield {name: steps for name, (_, steps) in failing.items()}
    for replica, _ in failing.values():
        await running_fleet.remove(replica)
    await running_fleet.start(upload_service=2, catalog_service=1)


@pytest.mark.parametrize("service", SERVICES)
async def test_after_a_death_at_any_step_the_same_request_again_has_the_same_result(
    running_fleet: Fleet, mortal: dict[str, Steps], service: str
) -> None:
    stories = []
    for step in await _all_steps(running_fleet, mortal[service]):
        mortal[service].die_after(step)
        story = await Story.begin(running_fleet, mortal[service], step)
        await story.tell(insisting=True)
        assert mortal[service].died, f"nothing came to: {step}"
        stories.append(story)
    await _settled(running_fleet, stories)


@pytest.mark.parametrize("service", SERVICES)
async def test_after_a_death_at_any_step_what_nobody_asks_for_again_is_finished_or_undone(
    running_fleet: Fleet, mortal: dict[str, Steps], service: str
) -> None:
    stories = []
    for step in await _all_steps(running_fleet, mortal[service]):
        mortal[service].die_after(step)
        story = await Story.begin(running_fleet, mortal[service], step)
        try:
            await story.tell(insisting=False)
        except Interrupted:
            await running_fleet.ready()
        assert mortal[service].died, f"nothing came to: {step}"
        stories.append(story)
    await _settled(running_fleet, stories)


async def _all_steps(fleet: Fleet, steps: Steps) -> list[str]:
    steps.count()
    story = await Story.begin(fleet, steps, "all goes well")
    await story.tell(insisting=False)
    await _settled(fleet, [story])
    return steps.counted()


async def _settled(fleet: Fleet, stories: list[Story]) -> None:
    """Let a day pass, and see that nothing is left but what every story keeps."""
    for story in stories:
        await fleet.age(story.api.tenant_id, A_DAY)
    left: dict[str, list[str]] = {}

    async def nothing_left() -> bool:
        left.clear()
        left.update(await _left(fleet, stories))
        return not left

    with suppress(TimeoutError):
        await until(nothing_left, patience=SETTLED_WITHIN)
    assert not left


async def _left(fleet: Fleet, stories: list[Story]) -> dict[str, list[str]]:
    found = {}
    for story in stories:
        state = await State.read(fleet.mongo, story.api.tenant_id)
        if problems := state.unsettled() + await violations(fleet, [story.api.tenant_id]):
            found[story.title] = problems
    return found
