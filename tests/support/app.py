"""Fixtures of the running product, one per test process. Each test uses its own tenant."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from tests.support.servers.users import as_user
from tests.support.system.commands import CommandRecorder
from tests.support.system.services import Api, Services, all_services
from tests.support.wait import TIMEOUT


@pytest.fixture(scope="session")
def commands() -> CommandRecorder:
    """Records the MongoDB commands of the services."""
    return CommandRecorder()


@pytest.fixture(scope="session")
async def services(
    mongo_url: str, redis_url: str, rabbitmq_url: str, commands: CommandRecorder
) -> AsyncIterator[Services]:
    with TemporaryDirectory(prefix="pkgrepo-") as folder, pytest.MonkeyPatch.context() as patched:  # short: for sockets
        patched.setattr("common.mongo.AsyncIOMotorClient", partial(AsyncIOMotorClient, event_listeners=[commands]))
        # Tests read the audit log at once, so the entry must be written before the response even on a busy machine.
        patched.setattr("gateway.forwarding.audit.TIMEOUT", TIMEOUT)
        # Each service has its own user at the stores, so a test fails where a service lacks a right.
        async with all_services(Path(folder), mongo_url, redis_url, rabbitmq_url, as_user) as running:
            yield running


@pytest.fixture
async def tenant(services: Services) -> Api:
    """An administrator of a new tenant of the multi-tenant deployment."""
    return await services.tenant()


@pytest.fixture
async def other_tenant(services: Services) -> Api:
    """An administrator of another tenant."""
    return await services.tenant()
