"""Fixtures of callers in each deployment, and of a cluster. Each test uses its own tenant."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from common.auth.internal_tokens import Deployment
from tests.support.processes.cluster import SHORT_PAUSES, Cluster, run_cluster
from tests.support.servers.stores import private_stores
from tests.support.system.gateways import single_gateway
from tests.support.system.services import Api, Services


@pytest.fixture(params=list(Deployment))
async def either(services: Services, request: pytest.FixtureRequest) -> Api:
    """An administrator of each deployment in turn."""
    return await services.tenant(request.param)


@pytest.fixture(scope="session", params=[*Deployment, "alias"])
async def each(services: Services, request: pytest.FixtureRequest) -> Api:
    """An administrator of each deployment and of the alias, shared by tests that change nothing."""
    if request.param == "alias":
        return (await services.tenant()).by_alias()
    return await services.tenant(request.param)


@pytest.fixture
async def single(services: Services) -> Api:
    """An administrator of the single-tenant deployment."""
    return await services.tenant(Deployment.SINGLE)


@pytest.fixture(scope="session")
async def enforcing(services: Services) -> Api:
    """An administrator of a tenant with client authentication."""
    return await services.tenant(client_authentication=True)


@pytest.fixture(scope="session")
async def enforcing_single(services: Services, enforcing: Api, redis_url: str) -> AsyncIterator[Api]:
    """The same administrator through a single-tenant gateway."""
    async with single_gateway(services, redis_url, enforcing) as api:
        yield api


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    """Service processes with their own stores. A test restarts the processes that it stops."""
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with (
            private_stores(Path(folder)) as stores,
            run_cluster(stores, patches=SHORT_PAUSES, upload_service=2, gateway=2) as cluster,
        ):
            yield cluster
