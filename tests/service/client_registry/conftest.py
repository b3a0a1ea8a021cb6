"""Fixtures for the tests of client_registry."""

from collections.abc import AsyncIterator

import pytest

from tests.support.services.registry import Registry, serving_registry


@pytest.fixture(scope="module")
async def served_registry(mongo_url: str, redis_url: str) -> AsyncIterator[Registry]:
    """A service shared by the tests of a file; each test has its own tenant."""
    async with serving_registry(mongo_url, redis_url) as served:
        yield served


@pytest.fixture
def registry(served_registry: Registry) -> Registry:
    """The service. At the start of a test, there is no file."""
    served_registry.uploads.reset()
    return served_registry
