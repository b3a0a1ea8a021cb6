"""A service is killed after each of its steps (F6). Abandoned requests are finished or undone."""

import pytest

from tests.support.faults.crash_steps import kill_at_every_step
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import single_replica

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["upload_service", "catalog_service"])
async def test_abandoned_requests_leave_nothing_after_a_kill_at_any_step(cluster: Cluster, service: str) -> None:
    async with single_replica(cluster, service) as steps:
        outcome = await kill_at_every_step(cluster, steps, service, retries=False)
    assert outcome.succeeded, str(outcome)
