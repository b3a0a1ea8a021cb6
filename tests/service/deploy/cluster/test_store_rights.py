"""Each service has a user at each store, as `pkgrepo cluster` makes it, and no access to data of other services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from redis.asyncio import Redis
from redis.exceptions import RedisError

from common.auth.sessions import Sessions
from common.redis import open_redis
from deploy.cluster.rights import HEALTH, MONGODB, REDIS, prepare, redis_acl
from deploy.local.servers import run_server
from tests.support.factories import KEYS
from tests.support.servers.rights import EVERY_USER, excess_rights
from tests.support.servers.start import mongod_with_users
from tests.support.servers.users import PASSWORD, as_user, credentials
from tests.support.tables import each
from tests.support.wait import until


@each(("store", "user"), EVERY_USER)
async def test_a_user_has_access_to_the_data_of_its_service_only(
    store: str, user: str, mongo_url: str, redis_url: str, rabbitmq_url: str
) -> None:
    url = {"mongodb": mongo_url, "redis": redis_url, "rabbitmq": rabbitmq_url}[store]
    assert await excess_rights(store, as_user(url, user), user) == []


async def test_the_first_password_replaces_the_earlier_one_of_root() -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with mongod_with_users(Path(folder)) as url:
            address = url.rpartition("@")[2].partition("/?")[0]
            for _ in range(2):  # Re-running is safe.
                await prepare(address, "../mongod.sock", ["another-password", PASSWORD], credentials(MONGODB))
            async with AsyncMongoClient[dict[str, object]](url.replace(PASSWORD, "another-password")) as client:
                assert (await client.admin.command("usersInfo"))["users"]
            async with AsyncMongoClient[dict[str, object]](url) as client:
                with pytest.raises(OperationFailure, match="Authentication failed"):
                    await client.admin.command("usersInfo")


COMMAND = "redis-server --aclfile ../users.acl --port 0 --unixsocket ../redis.sock --appendonly yes"


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[str]:
    """Debian's Redis on this folder; yields its address without a user."""
    (folder / "users.acl").write_text(redis_acl(credentials(REDIS)))
    url = f"unix://{folder}/redis.sock"

    async def answers() -> bool:
        async with Redis.from_url(as_user(url, HEALTH)) as client:
            try:
                return bool(await client.ping())
            except RedisError:
                return False

    async with run_server(COMMAND.split(), folder, lambda: until(answers)):
        yield url


async def test_sessions_outlive_a_restart_of_redis() -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        async with redis_server(folder) as url, open_redis(as_user(url, "auth_service")) as redis:
            token = await Sessions(redis, keys=KEYS, lifetime=60, idle=60).open("acme", "ada")
        async with redis_server(folder) as url, open_redis(as_user(url, "gateway")) as redis:
            assert (await Sessions(redis, keys=KEYS, lifetime=60, idle=60).check("acme", token)).username == "ada"
