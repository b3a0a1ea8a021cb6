"""The connection to Redis, opened alike by every service that has one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

__all__ = ["Redis", "RedisError", "ScriptRunner", "open_redis"]

CONNECTIONS = 128
SLOT_TIMEOUT = 3.0  # seconds that a call waits for one of them
ANSWER_TIMEOUT = 1.0  # seconds that Redis may take, the connecting included


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator["Redis"]:
    """A client that says within about a second that Redis is away; calls beyond its connections wait their turn."""
    pool: ConnectionPool = ConnectionPool.from_url(
        url,
        socket_connect_timeout=None,
        socket_timeout=None,
        retry=Retry(ConstantBackoff(0.05), 1),
        max_connections=CONNECTIONS + 1,  # and the one of `ScriptRunner`
        decode_responses=True,
    )
    client = _Redis.from_pool(pool)
    try:
        yield client
    finally:
        await client.aclose()


class _Redis(Redis):
    """Every command waits its turn, and raises Overloaded where that does not come; RedisError without an answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._turns = ConcurrencyLimit(CONNECTIONS)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with traces.command_span("redis", str(args[0])):
            async with self._turns.acquire(SLOT_TIMEOUT):
                try:
                    async with loop_timeout(ANSWER_TIMEOUT):
                        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
                except TimeoutError:
                    raise RedisTimeout("Redis does not answer.") from None


class ScriptRunner:
    """A script that is run again and again, never twice at once, over a connection of its own.

    To take one from the client's for each time costs three times what the command itself does.
    """

    def __init__(self, redis: "Redis", script: str) -> None:
        self._pool: ConnectionPool = redis.connection_pool
        self._script = script
        self._digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._connection: Connection | None = None

    async def run(self, *arguments: str | int) -> Any:
        """What the script answers to the number of its keys, its keys, and its other arguments.

        Raises RedisError where Redis does not answer.
        """
        with traces.command_span("redis", "EVALSHA"):
            try:
                async with loop_timeout(ANSWER_TIMEOUT):
                    try:
                        return await self._ask("EVALSHA", self._digest, *arguments)
                    except NoScriptError:
                        return await self._ask("EVAL", self._script, *arguments)
                    except RedisConnectionError:  # It was closed since, or Redis started anew.
                        return await self._ask("EVAL", self._script, *arguments)
            except TimeoutError:
                raise RedisTimeout("Redis does not answer.") from None

    async def _ask(self, *command: str | int) -> Any:
        if self._connection is None:
            self._connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        await self._connection.send_command(*command)  # connects again where it has to
        return await self._connection.read_response()
