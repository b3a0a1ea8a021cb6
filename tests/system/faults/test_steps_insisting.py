"""A service dies after each of its steps (F6); a client that repeats its requests gets the usual answers."""

import pytest

from tests.support.faults.crash_steps import dead_at_every_step
from tests.support.processes.cluster import Fleet
from tests.support.processes.failpoint_control import alone

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["upload_service", "catalog_service"])
async def test_repeated_requests_succeed_after_a_death_at_any_step(running_fleet: Fleet, service: str) -> None:
    async with alone(running_fleet, service) as steps:
        outcome = await dead_at_every_step(running_fleet, steps, service, insisting=True)
    assert outcome.good, str(outcome)
