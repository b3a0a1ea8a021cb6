"""Fixtures for the tests of catalog_service."""

from collections.abc import AsyncIterator, Iterator

import pytest

from common.auth.internal_tokens import Caller
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog, serving_catalog


@pytest.fixture(scope="module", autouse=True)
def no_sweeps() -> Iterator[None]:
    """The service sweeps, and looks at releases, only when a test advances the time."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("SWEEP_PAUSE", "RELEASE_PAUSE", "INFECTED_PAUSE"):
            patched.setattr(f"catalog_service.app.{name}", 3600)
        yield


@pytest.fixture(scope="module")
async def served_catalog(mongo_url: str, redis_url: str) -> AsyncIterator[Catalog]:
    """A service shared by the tests of a file; each test has its own tenant."""
    async with serving_catalog(mongo_url, redis_url) as served:
        yield served


@pytest.fixture
def catalog(served_catalog: Catalog) -> Catalog:
    """The service. At the start of a test, the fakes of other services know no file and refuse nothing."""
    served_catalog.stubs.reset()
    return served_catalog


@pytest.fixture
async def caller(catalog: Catalog) -> Caller:
    """An administrator of a tenant with the package acme.editor."""
    caller = make_caller()
    await catalog.add_package(caller)
    return caller
