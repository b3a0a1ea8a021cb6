"""A MongoDB for the backups of one module."""

from collections.abc import AsyncIterator

import pytest

from deploy.local import servers


@pytest.fixture(scope="module")
async def own_mongo_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A separate MongoDB, because a backup has everything in it, and the databases have fixed names."""
    async with servers.mongod(tmp_path_factory.mktemp("mongodb")) as url:
        yield url
