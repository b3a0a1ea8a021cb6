"""Killed and restarted services during uploads: they recover alone and lose nothing acknowledged."""

import pytest

from tests.support.faults.processes import kill_services, mixed_faults, rolling_restart
from tests.support.processes.cluster import Cluster

SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.full)], ids=["one replica", "each replica"])
async def test_killing_each_service_loses_nothing_acknowledged(cluster: Cluster, times: int) -> None:
    outcome = await kill_services(cluster, SERVICES, times=times)
    assert outcome.succeeded, outcome


@pytest.mark.full
async def test_a_rolling_restart_fails_no_request(cluster: Cluster) -> None:
    outcome = await rolling_restart(cluster, ["upload_service", "gateway"])
    assert outcome.succeeded, outcome


@pytest.mark.full
async def test_random_kills_exceed_no_quota_and_lose_nothing(cluster: Cluster) -> None:
    outcome = await mixed_faults(cluster, seconds=8)
    assert outcome.succeeded, outcome
