"""A service is killed after each of its steps (F6). Retried requests get the usual answers."""

import pytest

from tests.support.faults.crash_steps import kill_at_every_step
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import single_replica

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["upload_service", "catalog_service"])
async def test_retried_requests_succeed_after_a_kill_at_any_step(cluster: Cluster, service: str) -> None:
    async with single_replica(cluster, service) as steps:
        outcome = await kill_at_every_step(cluster, steps, service, retries=True)
    assert outcome.succeeded, str(outcome)
