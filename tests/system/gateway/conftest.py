"""Tenants with one object of each kind."""

from collections.abc import AsyncIterator, Mapping

import pytest

from common.auth.internal_tokens import Deployment
from tests.support.system.seed import SeedData, seed_tenant
from tests.support.system.services import Services, single_gateway


@pytest.fixture(scope="session", params=[Deployment.MULTI, pytest.param(Deployment.SINGLE, marks=pytest.mark.full)])
async def furnished(services: Services, redis_url: str, request: pytest.FixtureRequest) -> AsyncIterator[SeedData]:
    """A tenant with one object of each kind, in each deployment. Tests delete nothing of it."""
    tenant = await services.tenant()
    if request.param is Deployment.MULTI:
        yield await seed_tenant(tenant)
        return
    async with single_gateway(services, redis_url, tenant) as single:
        yield (await seed_tenant(tenant)).via(single)


@pytest.fixture(scope="module")
async def guarded(services: Services) -> tuple[SeedData, Mapping[str, str]]:
    """A tenant that must not change, and its view."""
    seed_data = await seed_tenant(await services.tenant())
    return seed_data, await seed_data.view_without_audit()
