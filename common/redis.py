"""The connection to Redis, with time limits and a limit of connections."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from hashlib import sha1
from typing import Any

from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from common.concurrency.limits import ConcurrencyLimit, loop_timeout
from common.telemetry.tracing import traces

__all__ = ["Redis", "RedisError", "RedisOutage", "ScriptRunner", "open_redis"]

RedisOutage = (RedisConnectionError, RedisTimeout)

CONNECTIONS = 128
SLOT_TIMEOUT = 3.0  # seconds that a call waits for a connection
ANSWER_TIMEOUT = 1.0  # seconds for an answer, including the connection


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
