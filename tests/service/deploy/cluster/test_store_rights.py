"""Each service has a user at each store; the store refuses access to data of other services."""

import pytest

from deploy.cluster.rights import MONGODB, RABBITMQ, REDIS
from tests.support.servers.rights import excess_mongodb_rights, excess_rabbitmq_rights, excess_redis_rights
from tests.support.servers.users import as_user


@pytest.mark.parametrize("user", MONGODB)
async def test_a_mongodb_user_can_access_its_own_databases_only(user: str, mongo_url: str) -> None:
    assert await excess_mongodb_rights(as_user(mongo_url, user), user) == []


@pytest.mark.parametrize("user", REDIS)
async def test_a_redis_user_can_use_its_own_keys_and_commands_only(user: str, redis_url: str) -> None:
    assert await excess_redis_rights(as_user(redis_url, user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_a_rabbitmq_user_can_use_its_own_exchanges_and_queues_only(user: str, rabbitmq_url: str) -> None:
    assert await excess_rabbitmq_rights(as_user(rabbitmq_url, user), user) == []
