"""Failed logins and known networks in Redis, shared by all replicas."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

KNOWN_FOR = 30 * 24 * 3600  # seconds after the last login from a network
KNOWN_NETWORKS = 20  # of a user; one more replaces the least recently used

# KEYS: a count. ARGV: window (seconds).
_COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return count
"""

# KEYS: a user's networks by the times of their last logins. ARGV: the network, KNOWN_FOR, KNOWN_NETWORKS.
_ADD = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[3] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""

# KEYS: a user's networks. ARGV: the network, KNOWN_FOR.
_CONTAINS = """
local login = redis.call('ZSCORE', KEYS[1], ARGV[1])
return login and redis.call('TIME')[1] - login < tonumber(ARGV[2]) and 1 or 0
"""


class RedisFailureCounts:
    """Counts failures by name. Raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._count: Any = redis.register_script(_COUNT)

    async def count(self, name: str, window: int) -> int:
        """Add one failure and return the count, which is deleted `window` seconds after its first failure."""
        return int(await self._count(keys=[_key(name)], args=[window]))

    async def wait(self, limits: Mapping[str, int]) -> int:
        """Seconds until every count is below its limit again."""
        longest = 0
        for name, limit in limits.items():
            if int(await self._redis.get(_key(name)) or 0) >= limit:
                longest = max(longest, await self._redis.ttl(_key(name)), 1)
        return longest

    async def forget(self, name: str) -> None:
        await self._redis.delete(_key(name))


class RedisKnownNetworks:
    """The networks of each user's last logins. Raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._add: Any = redis.register_script(_ADD)
        self._contains: Any = redis.register_script(_CONTAINS)

    async def add(self, tenant_id: str, username: str, network: str) -> None:
        await self._add(keys=[_networks_key(tenant_id, username)], args=[network, KNOWN_FOR, KNOWN_NETWORKS])

    async def contains(self, tenant_id: str, username: str, network: str) -> bool:
        return bool(await self._contains(keys=[_networks_key(tenant_id, username)], args=[network, KNOWN_FOR]))

    async def forget(self, tenant_id: str, username: str) -> None:
        await self._redis.delete(_networks_key(tenant_id, username))

    async def forget_tenant(self, tenant_id: str) -> None:
        """Forget the networks of all users of a tenant. Scans all keys: for operator commands only."""
        async for key in self._redis.scan_iter(match=_networks_key(tenant_id, "*"), count=1000):
            await self._redis.delete(key)


def _networks_key(tenant_id: str, username: str) -> str:
    return _key(f"places:{tenant_id}:{username}")


def _key(name: str) -> str:
    return f"failures:{name}"
