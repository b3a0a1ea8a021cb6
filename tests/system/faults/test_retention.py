"""Retention leaves nothing half done after any kill, and deletes nothing that was not hidden for seven days."""

import pytest

from tests.support.faults.retention import kill_during_retention
from tests.support.processes.cluster import Cluster

pytestmark = pytest.mark.full


async def test_retention_killed_at_any_step_goes_on(cluster: Cluster) -> None:
    outcome = await kill_during_retention(cluster)
    assert outcome.succeeded, outcome
    assert outcome.times > 8
