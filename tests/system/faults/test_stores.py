"""Killed stores and an unavailable or full broker: services recover alone and lose nothing acknowledged."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.support.faults import stores as faults_stores
from tests.support.faults.results import Outcome
from tests.support.processes.cluster import Cluster

Fault = Callable[[Cluster], Awaitable[Outcome]]
UPLOADS = 40


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults_stores.kill_mongod, id="MongoDB killed"),
        pytest.param(faults_stores.kill_redis, id="Redis killed"),
        pytest.param(partial(faults_stores.stop_broker, uploads=UPLOADS), id="RabbitMQ away"),
        pytest.param(
            partial(faults_stores.fill_broker_disk, uploads=UPLOADS), id="RabbitMQ full", marks=pytest.mark.full
        ),
        pytest.param(partial(faults_stores.delete_queue, uploads=UPLOADS), id="queue deleted", marks=pytest.mark.full),
        pytest.param(
            partial(faults_stores.publish_events_twice, uploads=UPLOADS), id="relay killed", marks=pytest.mark.full
        ),
    ],
)
async def test_a_failed_store_loses_nothing_acknowledged(cluster: Cluster, fault: Fault) -> None:
    outcome = await fault(cluster)
    assert outcome.succeeded, str(outcome)
