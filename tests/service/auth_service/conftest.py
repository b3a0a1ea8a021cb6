"""Fixtures for the tests of auth_service."""

from collections.abc import AsyncIterator

import pytest

from tests.support.services.auth import Auth, serving_auth


@pytest.fixture(scope="module")
async def auth(mongo_url: str, redis_url: str) -> AsyncIterator[Auth]:
    """A service shared by the tests of a file; each test has its own tenant."""
    async with serving_auth(mongo_url, redis_url) as served:
        yield served
