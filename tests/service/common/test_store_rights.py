"""Each service has a user at each store, which refuses it everything that belongs to another service."""

import pytest

from deploy.cluster.rights import MONGODB, RABBITMQ, REDIS
from tests.support.servers.rights import excess_mongodb_rights, excess_rabbitmq_rights, excess_redis_rights
from tests.support.servers.users import as_user


@pytest.mark.parametrize("user", MONGODB)
async def test_mongodb_refuses_a_user_everything_beyond_its_databases(user: str, mongo_url: str) -> None:
    assert await excess_mongodb_rights(as_user(mongo_url, user), user) == []


@pytest.mark.parametrize("user", REDIS)
async def test_redis_refuses_a_user_every_key_and_command_beyond_its_own(user: str, redis_url: str) -> None:
    assert await excess_redis_rights(as_user(redis_url, user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_rabbitmq_refuses_a_user_every_exchange_and_queue_beyond_its_own(user: str, rabbitmq_url: str) -> None:
    assert await excess_rabbitmq_rights(as_user(rabbitmq_url, user), user) == []
