"""A service is killed after each of its steps (F6). Retried requests succeed, abandoned ones are finished or undone."""

import pytest

from tests.support.faults.tenant_scenario import kill_during_requests
from tests.support.processes.cluster import Cluster

pytestmark = pytest.mark.full


@pytest.mark.parametrize("retries", [True, False], ids=["the client retries", "the client gives up"])
@pytest.mark.parametrize("service", ["upload_service", "catalog_service"])
async def test_a_kill_at_any_step_of_a_request_leaves_nothing_half_done(
    cluster: Cluster, service: str, *, retries: bool
) -> None:
    # Three times per kind of step: in the first, a middle and the last chunk of a file.
    outcome = await kill_during_requests(cluster, service, retries=retries, times=3)
    assert outcome.succeeded, str(outcome)
    assert outcome.times > 10 * len(outcome.missed), str(outcome)  # A busy machine changes the order of some steps.
