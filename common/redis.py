"""The connection to Redis, with time limits and a limit of connections, and the versions of tenants in it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from hashlib import sha1
from typing import Any
from uuid import uuid4

from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from common.concurrency.limits import ConcurrencyLimit, loop_timeout
from common.errors import Problem
from common.telemetry import log, traces

__all__ = [
    "CHANGING",
    "TENANT_VERSION_HEADER",
    "Redis",
    "RedisError",
    "RedisOutage",
    "ScriptRunner",
    "TenantVersions",
    "WindowCounts",
    "access_version_key",
    "open_redis",
    "tenant_version_key",
]

RedisOutage = (RedisConnectionError, RedisTimeout)

CONNECTIONS = 128
SLOT_TIMEOUT = 3.0  # seconds that a call waits for a connection
ANSWER_TIMEOUT = 1.0  # seconds for an answer, including the connection
# The version that a gateway read before it called a service; the service may cache by it, too.
TENANT_VERSION_HEADER = "X-Internal-Tenant-Version"
VERSION_LIFETIME = 24 * 3600  # seconds; gateways cache nothing for as long
CHANGING = ""  # the version of a tenant that is being changed: gateways cache nothing of it
CHANGE_TIMEOUT = 60  # seconds; a change whose service died is done by then, or never will be


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator["Redis"]:
    """A client that fails within about a second if Redis is away; calls beyond `CONNECTIONS` wait for a slot."""
    pool: ConnectionPool = ConnectionPool.from_url(
        url,
        socket_connect_timeout=None,
        socket_timeout=None,
        retry=Retry(ConstantBackoff(0.05), 1),
        max_connections=CONNECTIONS + 1,  # and one for `ScriptRunner`
        decode_responses=True,
    )
    async with aclosing(_Redis.from_pool(pool)) as client:
        yield client


class _Redis(Redis):
    """Each command waits for a slot. It raises Overloaded if there is none, RedisError without an answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._limit = ConcurrencyLimit(CONNECTIONS)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with traces.command_span("redis", str(args[0])):
            async with self._limit.acquire(SLOT_TIMEOUT):
                try:
                    async with loop_timeout(ANSWER_TIMEOUT):
                        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
                except TimeoutError:
                    raise RedisTimeout("Redis does not answer.") from None


class ScriptRunner:
    """Runs one script over its own connection, one call at a time.

    Taking a connection from the client's pool would cost three times as much as the command.
    """

    def __init__(self, redis: "Redis", script: str) -> None:
        self._pool: ConnectionPool = redis.connection_pool
        self._script = script
        self._digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._connection: Connection | None = None

    async def run(self, *arguments: str | int) -> Any:
        """Run the script with the number of its keys, its keys, and its other arguments. Raises RedisError."""
        with traces.command_span("redis", "EVALSHA"):
            try:
                async with loop_timeout(ANSWER_TIMEOUT):
                    try:
                        return await self._send("EVALSHA", self._digest, *arguments)
                    except (NoScriptError, RedisConnectionError):  # Redis restarted, or the connection was closed.
                        return await self._send("EVAL", self._script, *arguments)
            except TimeoutError:
                raise RedisTimeout("Redis does not answer.") from None

    async def _send(self, *command: str | int) -> Any:
        if self._connection is None:
            self._connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        await self._connection.send_command(*command)  # It connects again if necessary.
        return await self._connection.read_response()


# KEYS: a count. ARGV: window (seconds).
_COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return count
"""


class WindowCounts:
    """Counts events by name, each name from its first event to the end of a window.

    `prefix` is that of the keys. Raises RedisError if Redis does not answer.
    """

    def __init__(self, redis: "Redis", prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._count: Any = redis.register_script(_COUNT)

    async def count(self, name: str, window: int) -> int:
        """Add one event and return the count, which is deleted `window` seconds after its first event."""
        return int(await self._count(keys=[self.key(name)], args=[window]))

    async def wait(self, limits: Mapping[str, int]) -> int:
        """Seconds until every count is below its limit again."""
        longest = 0
        for name, limit in limits.items():
            if int(await self._redis.get(self.key(name)) or 0) >= limit:
                longest = max(longest, await self._redis.ttl(self.key(name)), 1)
        return longest

    async def forget(self, name: str) -> None:
        await self._redis.delete(self.key(name))

    def key(self, name: str) -> str:
        """The key of a count in Redis."""
        return f"{self._prefix}:{name}"


class TenantVersions:
    """Two versions for each tenant: one of everything that gateways cache, one of its settings, users and tokens alone.

    A gateway reads both with each request. A cached value is valid only while its version is the one from before the
    value was fetched. All gateways therefore see a change as soon as it is answered.

    Raises RedisError if Redis does not answer, Overloaded if too many calls wait.
    """

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def invalidate_during(self, tenant_id: str) -> AbstractAsyncContextManager[None]:
        """Invalidate gateways' caches of a tenant, without its access, around the change in the block.

        Without Redis, the change does not begin. A change that was made is answered even if the new version cannot be
        set: until `CHANGE_TIMEOUT` gateways then cache nothing of the tenant, and stay correct.
        """
        return self._during(tenant_id, tenant_version_key(tenant_id))

    def invalidate_access_during(self, tenant_id: str) -> AbstractAsyncContextManager[None]:
        """As `invalidate_during`, with the settings, users and tokens of the tenant."""
        return self._during(tenant_id, access_version_key(tenant_id), tenant_version_key(tenant_id))

    @asynccontextmanager
    async def _during(self, tenant_id: str, *keys: str) -> AsyncIterator[None]:
        for key in keys:
            await self._redis.set(key, CHANGING, ex=CHANGE_TIMEOUT)
        try:
            yield
        finally:
            try:
                await self._move(*keys)
            except (RedisError, Problem) as error:
                log.warning("stamp_not_moved", tenant_id=tenant_id, error=type(error).__name__)

    async def bump(self, tenant_id: str) -> None:
        """Invalidate all that gateways cache of a tenant."""
        await self._move(access_version_key(tenant_id), tenant_version_key(tenant_id))

    async def _move(self, *keys: str) -> None:
        for key in keys:
            await self._redis.set(key, uuid4().hex, ex=VERSION_LIFETIME)


def tenant_version_key(tenant_id: str) -> str:
    """The Redis key of a tenant's version; absent if nothing changed for a long time."""
    return f"stamp:{tenant_id}"


def access_version_key(tenant_id: str) -> str:
    """The Redis key of the version of a tenant's settings, users and tokens."""
    return f"stamp:{tenant_id}:access"
