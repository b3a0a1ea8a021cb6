"""Failed logins, counted in Redis for every replica alike."""

from typing import Any

from redis.asyncio import Redis

# KEYS: a count. ARGV: window (seconds).
_COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return count
"""


class RedisFailures:
    """The counts behind `auth_service.throttle.Failures`. Raises RedisError where Redis does not answer."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._count: Any = redis.register_script(_COUNT)

    async def count(self, name: str, window: int) -> int:
        return int(await self._count(keys=[_key(name)], args=[window]))

    async def wait(self, names: tuple[str, ...], limit: int) -> int:
        longest = 0
        for name in names:
            if int(await self._redis.get(_key(name)) or 0) >= limit:
                longest = max(longest, await self._redis.ttl(_key(name)), 1)
        return longest

    async def forget(self, name: str) -> None:
        await self._redis.delete(_key(name))


def _key(name: str) -> str:
    return f"failures:{name}"
