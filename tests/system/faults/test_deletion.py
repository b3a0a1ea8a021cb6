"""A deleted package leaves nothing, whatever dies meanwhile: a new package of the same id shows nothing old."""

import pytest

from tests.support.faults.package_deletion import deletion_killed
from tests.support.processes.cluster import Fleet

pytestmark = pytest.mark.full


@pytest.mark.parametrize("service", ["catalog_service", "upload_service"])
async def test_a_deletion_killed_at_any_step_leaves_nothing(running_fleet: Fleet, service: str) -> None:
    outcome = await deletion_killed(running_fleet, service, versions=5)
    assert outcome.good, outcome
    assert outcome.times > 3
