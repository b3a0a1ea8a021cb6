"""A tenant that attacks must not change."""

from collections.abc import AsyncIterator, Mapping

import pytest

from tests.support.system.seed import SeedData, seed_tenant
from tests.support.system.services import Services


@pytest.fixture(scope="module")
async def seeded(services: Services) -> tuple[SeedData, Mapping[str, str]]:
    """A tenant with one object of each kind, and everything that its administrator can read."""
    seed_data = await seed_tenant(await services.tenant())
    return seed_data, await seed_data.view()


@pytest.fixture
async def owner(seeded: tuple[SeedData, Mapping[str, str]]) -> AsyncIterator[SeedData]:
    """That tenant. The test fails if it changes."""
    seed_data, before = seeded
    yield seed_data
    assert await seed_data.view() == before
