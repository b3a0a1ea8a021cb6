"""A store that dies, and a broker that is away, full or forgetful, lose nothing acknowledged and need no operator."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.support.faults import stores as faults_stores
from tests.support.faults.results import Outcome
from tests.support.processes.cluster import Fleet

Fault = Callable[[Fleet], Awaitable[Outcome]]
UPLOADS = 40


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults_stores.mongod_killed, id="MongoDB killed"),
        pytest.param(faults_stores.redis_killed, id="Redis killed"),
        pytest.param(partial(faults_stores.broker_away, uploads=UPLOADS), id="RabbitMQ away"),
        pytest.param(partial(faults_stores.broker_full, uploads=UPLOADS), id="RabbitMQ full", marks=pytest.mark.full),
        pytest.param(partial(faults_stores.queue_deleted, uploads=UPLOADS), id="queue deleted", marks=pytest.mark.full),
        pytest.param(partial(faults_stores.relay_killed, uploads=UPLOADS), id="relay killed", marks=pytest.mark.full),
    ],
)
async def test_a_store_that_fails_loses_nothing_acknowledged(running_fleet: Fleet, fault: Fault) -> None:
    outcome = await fault(running_fleet)
    assert outcome.good, str(outcome)
