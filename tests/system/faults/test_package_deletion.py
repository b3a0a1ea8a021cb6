"""A deletion leaves nothing after any kill: a new package with the same id shows nothing old."""

import pytest

from tests.support.faults.package_deletion import kill_during_deletion
from tests.support.processes.cluster import Cluster

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["catalog_service", "upload_service"])
async def test_a_deletion_killed_at_any_step_leaves_nothing(cluster: Cluster, service: str) -> None:
    outcome = await kill_during_deletion(cluster, service, versions=5)
    assert outcome.succeeded, outcome
    assert outcome.times > 3
