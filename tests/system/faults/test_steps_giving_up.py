"""A service dies after each of its steps (F6); what the client abandons is finished or undone."""

import pytest

from tests.support.faults.crash_steps import dead_at_every_step
from tests.support.processes.cluster import Fleet
from tests.support.processes.failpoint_control import alone

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["upload_service", "catalog_service"])
async def test_abandoned_requests_leave_nothing_after_a_death_at_any_step(running_fleet: Fleet, service: str) -> None:
    async with alone(running_fleet, service) as steps:
        outcome = await dead_at_every_step(running_fleet, steps, service, insisting=False)
    assert outcome.good, str(outcome)
