"""The real servers of the tests: one that the environment names, else a Docker container, else one of this machine.

Where there is none of the three the tests that need it fail; none is left out.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy import local
from deploy.processes import NotStarted
from tests import rabbitmq as debian
from tests.containers import published_port
from tests.ports import answering


@asynccontextmanager
async def mongo() -> AsyncIterator[str]:
    """The URL of a MongoDB replica set: TEST_MONGO_URL, or the server's that is started here."""
    async with AsyncExitStack() as stack:
        yield (
            os.environ.get("TEST_MONGO_URL")
            or await _mongo_in_docker(stack)
            or await _bundled(stack, local.mongod, "TEST_MONGO_URL")
        )


@asynccontextmanager
async def redis() -> AsyncIterator[str]:
    """The URL of a Redis: TEST_REDIS_URL, or the server's that is started here."""
    async with AsyncExitStack() as stack:
        yield (
            os.environ.get("TEST_REDIS_URL")
            or await _redis_in_docker(stack)
            or await _bundled(stack, local.redis, "TEST_REDIS_URL")
        )


@asynccontextmanager
async def rabbitmq() -> AsyncIterator[str]:
    """The URL of a RabbitMQ: TEST_RABBITMQ_URL, or the server's that is started here."""
    async with AsyncExitStack() as stack:
        yield (
            os.environ.get("TEST_RABBITMQ_URL") or await _rabbitmq_in_docker(stack) or await _rabbitmq_of_debian(stack)
        )


async def _mongo_in_docker(stack: AsyncExitStack) -> str | None:
    command = ["mongod", "--replSet", "rs0", "--bind_ip_all", "--setParameter", "ttlMonitorSleepSecs=1"]
    port = await published_port(stack, "mongo:7", 27017, command)
    if port is None:
        return None
    url = f"mongodb://127.0.0.1:{port}/?directConnection=true"
    await local.form_replica_set(url, "localhost:27017")
    return url


async def _redis_in_docker(stack: AsyncExitStack) -> str | None:
    port = await published_port(stack, "redis:7", 6379)
    if port is None:
        return None
    await answering(port, b"PING\r\n", b"+PONG")
    return f"redis://127.0.0.1:{port}/0"


async def _rabbitmq_in_docker(stack: AsyncExitStack) -> str | None:
    port = await published_port(stack, "rabbitmq:4-management", 5672)
    if port is None:
        return None
    await answering(port, debian.AMQP_HEADER, debian.METHOD_ON_CHANNEL_0)
    return f"amqp://guest:guest@127.0.0.1:{port}/"


async def _bundled(
    stack: AsyncExitStack, server: Callable[[Path], AbstractAsyncContextManager[str]], variable: str
) -> str:
    folder = stack.enter_context(TemporaryDirectory(prefix="pkgrepo-"))
    try:
        return await stack.enter_async_context(server(Path(folder)))
    except local.ServerUnavailable as error:
        advice = _advice("pip install -r requirements-test.lock", variable)
        raise pytest.fail.Exception(f"{error}\n{advice}", pytrace=False) from None


async def _rabbitmq_of_debian(stack: AsyncExitStack) -> str:
    try:
        return await stack.enter_async_context(debian.rabbitmq())
    except NotStarted as error:
        advice = _advice("apt-get install rabbitmq-server", "TEST_RABBITMQ_URL")
        text = "\n".join([f"RabbitMQ {error.why}.", *error.log[-10:], advice])
        raise pytest.fail.Exception(text, pytrace=False) from None


def _advice(install: str, variable: str) -> str:
    return f"For the tests: `{install}`, or start a Docker engine, or set {variable}."
