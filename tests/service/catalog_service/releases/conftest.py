"""Fixtures for the tests of release control."""

import pytest

from common.auth.internal_tokens import Caller
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant


@pytest.fixture
async def tenant(catalog: Catalog) -> ReleaseTenant:
    tenant = ReleaseTenant(catalog)
    await catalog.add_package(tenant.ada)
    return tenant


@pytest.fixture
def caller(tenant: ReleaseTenant) -> Caller:
    return tenant.ada
