"""A service dies after each step of a story that uploads, creates and deletes (F6): what is asked again goes on.

Here each step comes once, with one client or the other; in `make torture` with both.
"""

import pytest

from tests.support.faults.steps import dead_at_every_step
from tests.support.processes.fleet import Fleet
from tests.support.processes.steps import alone

SERVICES = pytest.mark.parametrize("service", ["upload_service", "catalog_service"])


@SERVICES
async def test_after_a_death_at_any_step_the_same_request_again_has_the_same_result(
    running_fleet: Fleet, service: str
) -> None:
    async with alone(running_fleet, service) as steps:
        outcome = await dead_at_every_step(running_fleet, steps, service, insisting=True, chosen=slice(0, None, 2))
    assert outcome.good, str(outcome)


@SERVICES
async def test_after_a_death_at_any_step_what_nobody_asks_for_again_is_finished_or_undone(
    running_fleet: Fleet, service: str
) -> None:
    async with alone(running_fleet, service) as steps:
        outcome = await dead_at_every_step(running_fleet, steps, service, insisting=False, chosen=slice(1, None, 2))
    assert outcome.good, str(outcome)
