"""A service is killed after each step of a deletion or of retention: nothing stays half done."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.support.faults.package_deletion import kill_during_deletion
from tests.support.faults.results import Outcome
from tests.support.faults.retention import kill_during_retention
from tests.support.processes.cluster import Cluster

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("kill", "least"),
    [
        pytest.param(partial(kill_during_deletion, service="catalog_service", versions=5), 4, id="catalog, deletion"),
        pytest.param(partial(kill_during_deletion, service="upload_service", versions=5), 4, id="upload, deletion"),
        pytest.param(kill_during_retention, 9, id="retention"),
    ],
)
async def test_a_kill_at_any_step_leaves_nothing_half_done(
    cluster: Cluster, kill: Callable[[Cluster], Awaitable[Outcome]], least: int
) -> None:
    outcome = await kill(cluster)
    assert outcome.succeeded, str(outcome)
    assert outcome.times >= least, str(outcome)
