"""Killed and restarted services during uploads: they recover alone and lose nothing acknowledged."""

import pytest

from tests.support.faults.processes import kill_services, mixed_faults, rolling_restart
from tests.support.processes.cluster import Cluster

SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")


async def test_killing_each_service_once_loses_nothing_acknowledged(cluster: Cluster) -> None:
    outcome = await kill_services(cluster, SERVICES)
    assert outcome.succeeded, outcome


@pytest.mark.full
@pytest.mark.parametrize("service", SERVICES)
async def test_killing_all_replicas_loses_nothing_acknowledged(cluster: Cluster, service: str) -> None:
    outcome = await kill_services(cluster, [service], times=len(cluster.replicas[service]))
    assert outcome.succeeded, outcome


@pytest.mark.full
@pytest.mark.parametrize("service", ["upload_service", "gateway"])
async def test_a_rolling_restart_fails_no_request(cluster: Cluster, service: str) -> None:
    outcome = await rolling_restart(cluster, [service])
    assert outcome.succeeded, outcome


@pytest.mark.full
async def test_random_kills_exceed_no_quota_and_lose_nothing(cluster: Cluster) -> None:
    outcome = await mixed_faults(cluster, seconds=8)
    assert outcome.succeeded, outcome
