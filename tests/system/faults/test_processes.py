"""Services that die, stop and come back while publishers work: nothing acknowledged is lost, and no hand is needed."""

import pytest

from tests.support.faults.processes import killed, mixed, restarted_in_turn
from tests.support.processes.fleet import Fleet

SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")


@pytest.mark.parametrize("service", SERVICES)
async def test_killing_a_service_loses_nothing_that_was_acknowledged(running_fleet: Fleet, service: str) -> None:
    outcome = await killed(running_fleet, service, times=len(running_fleet.replicas[service]))
    assert outcome.good, outcome


@pytest.mark.parametrize("service", ["upload_service", "gateway"])
async def test_a_rolling_restart_fails_no_request(running_fleet: Fleet, service: str) -> None:
    outcome = await restarted_in_turn(running_fleet, [service])
    assert outcome.good, outcome


async def test_whatever_dies_the_quota_is_kept_and_says_what_is_there(running_fleet: Fleet) -> None:
    outcome = await mixed(running_fleet, seconds=8)
    assert outcome.good, outcome
