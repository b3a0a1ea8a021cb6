"""A package that is deleted is gone, whatever dies on the way: the same id added again shows nothing old."""

import pytest

from tests.support.faults.deletion import deletion_killed
from tests.support.processes.fleet import Fleet


@pytest.mark.parametrize("service", ["catalog_service", "upload_service"])
async def test_a_package_whose_deletion_was_killed_at_any_step_leaves_nothing(
    running_fleet: Fleet, service: str
) -> None:
    outcome = await deletion_killed(running_fleet, service, versions=10)
    assert outcome.good, outcome
    assert outcome.times > 3
