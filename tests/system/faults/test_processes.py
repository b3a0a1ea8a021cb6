"""Services that die, stop and come back while publishers work: nothing acknowledged is lost, and no hand is needed."""

import pytest

from tests.support.faults.processes import killed, mixed, restarted_in_turn
from tests.support.processes.cluster import Fleet

SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")


async def test_one_death_of_each_service_loses_nothing_acknowledged(running_fleet: Fleet) -> None:
    outcome = await killed(running_fleet, SERVICES)
    assert outcome.good, outcome


@pytest.mark.full
@pytest.mark.parametrize("service", SERVICES)
async def test_deaths_of_all_replicas_lose_nothing_acknowledged(running_fleet: Fleet, service: str) -> None:
    outcome = await killed(running_fleet, [service], times=len(running_fleet.replicas[service]))
    assert outcome.good, outcome


@pytest.mark.full
@pytest.mark.parametrize("service", ["upload_service", "gateway"])
async def test_a_rolling_restart_fails_no_request(running_fleet: Fleet, service: str) -> None:
    outcome = await restarted_in_turn(running_fleet, [service])
    assert outcome.good, outcome


@pytest.mark.full
async def test_random_deaths_never_exceed_the_quota_nor_lose_anything(running_fleet: Fleet) -> None:
    outcome = await mixed(running_fleet, seconds=8)
    assert outcome.good, outcome
