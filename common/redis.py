"""The connection to Redis, opened alike by every service that has one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from common.turns import Turns, within

__all__ = ["Redis", "RedisError", "open_redis"]

CONNECTIONS = 128
TURN_PATIENCE = 3.0  # seconds that a call waits for one of them
ANSWER_PATIENCE = 1.0  # seconds that Redis may take, the connecting included


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator["Redis"]:
    """A client that says within about a second that Redis is away; calls beyond its connections wait their turn."""
    pool: ConnectionPool = ConnectionPool.from_url(
        url,
        socket_connect_timeout=None,
        socket_timeout=None,
        retry=Retry(ConstantBackoff(0.05), 1),
        max_connections=CONNECTIONS,
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
        self._turns = Turns(CONNECTIONS)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with self._turns.one(TURN_PATIENCE):
            try:
                async with within(ANSWER_PATIENCE):
                    return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
            except TimeoutError:
                raise RedisTimeout("Redis does not answer.") from None
