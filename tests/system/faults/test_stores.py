"""Nothing acknowledged is lost, and nobody has to help, when a store dies or the broker is away: short forms."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.faults import stores as faults_stores
from tests.support.faults.results import Outcome
from tests.support.processes.fleet import Fleet


@pytest.mark.parametrize(
    "fault",
    [
        faults_stores.mongod_killed,
        faults_stores.redis_killed,
        faults_stores.broker_away,
        faults_stores.broker_full,
        faults_stores.queue_deleted,
        faults_stores.relay_killed,
    ],
)
async def test_a_store_that_fails_costs_nothing_but_time(
    running_fleet: Fleet, fault: Callable[[Fleet], Awaitable[Outcome]]
) -> None:
    outcome = await fault(running_fleet)
    assert outcome.good, str(outcome)
