"""Redis with the file of users that `pkgrepo cluster secrets` writes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from redis.asyncio import Redis
from redis.exceptions import RedisError

from common.auth.sessions import Sessions
from common.redis import open_redis
from deploy.cluster.rights import HEALTH, REDIS, redis_acl
from deploy.local.servers import run_server
from tests.support.factories import KEYS
from tests.support.servers.users import as_user, credentials
from tests.support.wait import until

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
