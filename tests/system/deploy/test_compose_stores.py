"""The stores in containers: rights of their users. Needs a container engine."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import encode_basic_auth
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from deploy.cluster.rights import MONGODB, RABBITMQ, REDIS, Credential
from deploy.cluster.secrets import ClusterSecrets
from tests.support.deployment.compose import ComposeProject, run_compose
from tests.support.servers.rights import excess_mongodb_rights, excess_rabbitmq_rights, excess_redis_rights


@pytest.fixture(scope="module")
async def project() -> AsyncIterator[ComposeProject]:
    async with run_compose(gateway=1) as running:
        yield running


def credential(project: ComposeProject, store: str, user: str) -> Credential:
    [entry] = [row for row in ClusterSecrets(project.secrets).credentials(store) if row.user == user]
    return entry


def url(project: ComposeProject, store: str, user: str) -> str:
    return project.store_url(store, str(credential(project, store, user)))


@pytest.mark.parametrize("user", MONGODB)
async def test_mongodb_limits_a_user_to_its_databases(project: ComposeProject, user: str) -> None:
    assert await excess_mongodb_rights(url(project, "mongodb", user), user) == []


@pytest.mark.parametrize("user", REDIS)
async def test_redis_limits_a_user_to_its_keys_and_commands(project: ComposeProject, user: str) -> None:
    assert await excess_redis_rights(url(project, "redis", user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_rabbitmq_limits_a_user_to_its_exchanges_and_queues(project: ComposeProject, user: str) -> None:
    assert await excess_rabbitmq_rights(url(project, "rabbitmq", user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_rabbitmq_lets_no_user_manage_the_broker(project: ComposeProject, user: str) -> None:
    login = credential(project, "rabbitmq", user)
    management = f"http://{urlsplit(url(project, 'rabbitmq', user)).hostname}:15672/api/overview"
    headers = {"Authorization": encode_basic_auth(login.name, login.password)}
    async with project.session.get(management, headers=headers) as answer:
        assert answer.status == 401


async def test_redis_rejects_a_caller_without_a_user(project: ComposeProject) -> None:
    address = urlsplit(url(project, "redis", "gateway")).hostname
    client: Any = Redis.from_url(f"redis://{address}:6379")
    async with client:
        with pytest.raises(AuthenticationError):
            await client.ping()
