"""The real servers, each started when the first test asks for it and stopped when the run ends."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests import servers
from tests.objects import ObjectServer

pytest_plugins = ["tests.attacks"]


@pytest.fixture(scope="session")
async def mongo_url() -> AsyncIterator[str]:
    """The URL of a MongoDB replica set, for all tests: each takes a database of its own."""
    async with servers.mongo() as url:
        yield url


@pytest.fixture(scope="session")
async def redis_url() -> AsyncIterator[str]:
    """The URL of a Redis, for all tests: each takes keys of its own."""
    async with servers.redis() as url:
        yield url


@pytest.fixture(scope="session")
async def rabbitmq_url() -> AsyncIterator[str]:
    """The URL of a RabbitMQ, for all tests: each takes names of its own."""
    async with servers.rabbitmq() as url:
        yield url


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3-compatible object storage with a bucket, for all tests: each takes a prefix of its own."""
    server = ObjectServer()
    server.start()
    server.make_bucket()
    yield server
    server.stop()
