"""Counts failed logins. A count at its limit refuses further logins for the rest of its 5 minutes.

Counts also the sign-ins that begin with an identity provider: 1,000 from one network in 10 minutes.

| count | limit |
|---|---|
| all users from one network | 10 |
| one user from one network | 10 |
| one user from all known networks, and from all other networks | 200 each |

A network is an IPv4 address or the /64 network of an IPv6 address. A user's known networks are those of the last
logins, so failures from elsewhere do not lock the user out there.
"""

from typing import Any

from redis.asyncio import Redis

from common.errors import TooManyRequests
from common.redis import WindowCounts
from common.telemetry import log
from common.tenants import network_of

FAILURES = "failures"  # the prefix of all keys
KNOWN_FOR = 30 * 24 * 3600  # seconds after the last login from a network
KNOWN_NETWORKS = 20  # of a user; one more replaces the least recently used

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


class RedisFailureCounts(WindowCounts):
    """Counts failures by name. Raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis") -> None:
        super().__init__(redis, FAILURES)


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
    return f"{FAILURES}:{name}"


NETWORK_FAILURE_LIMIT = 10
USER_FAILURE_LIMIT = 200
WINDOW = 300  # seconds
BEGUN_LIMIT = 1000  # Each takes memory of Redis until it is finished or expires.
BEGUN_WINDOW = 600  # seconds
RECORDED_REFUSALS = 60  # per minute and tenant, in the audit log
MINUTE = 60  # seconds


class TooManyFailures(TooManyRequests):
    code = "too_many_failures"

    def __init__(self, retry_after: int) -> None:
        detail = f"Too many failed logins; try again in {retry_after} seconds."
        super().__init__(detail, retry_after=retry_after, seconds=retry_after)


class Throttle:
    """Refuses to compare passwords after too many failures."""

    def __init__(self, failures: RedisFailureCounts, networks: RedisKnownNetworks) -> None:
        self._failures = failures
        self._networks = networks

    async def check(self, tenant_id: str, username: str, ip: str) -> None:
        """Raise TooManyFailures while a count is at its limit."""
        wait = await self._failures.wait(await self._limits(tenant_id, username, ip))
        if wait > 0:
            raise TooManyFailures(wait)

    async def count_failure(self, tenant_id: str, username: str, ip: str) -> None:
        for name in await self._limits(tenant_id, username, ip):
            await self._failures.count(name, WINDOW)

    async def count_begun(self, ip: str) -> None:
        """Count a sign-in that begins with an identity provider. Raises TooManyFailures."""
        name = f"begun:{network_of(ip)}"
        if await self._failures.count(name, BEGUN_WINDOW) > BEGUN_LIMIT:
            raise TooManyFailures(await self._failures.wait({name: BEGUN_LIMIT}))

    async def should_record_refusal(self, tenant_id: str) -> bool:
        """Whether to record one more refusal in the audit log; False once there are too many in a minute."""
        count = await self._failures.count(f"refused:{tenant_id}", MINUTE)
        if count == RECORDED_REFUSALS + 1:
            log.warning("refusals_not_recorded", tenant_id=tenant_id, operation="login")
        return count <= RECORDED_REFUSALS

    async def count_success(self, tenant_id: str, username: str, ip: str) -> None:
        """Add the network to the user's known ones and reset the user's count there.

        The other counts stay: one good password must not cover a search.
        """
        network = network_of(ip)
        await self._failures.forget(_user_in_network(tenant_id, username, network))
        await self._networks.add(tenant_id, username, network)

    async def forget_networks(self, tenant_id: str, username: str) -> None:
        await self._networks.forget(tenant_id, username)

    async def _limits(self, tenant_id: str, username: str, ip: str) -> dict[str, int]:
        """The limits of three counts, for a known and an unknown network: response times must not differ."""
        network = network_of(ip)
        group = "known" if await self._networks.contains(tenant_id, username, network) else "user"
        return {
            f"address:{network}": NETWORK_FAILURE_LIMIT,
            _user_in_network(tenant_id, username, network): NETWORK_FAILURE_LIMIT,
            f"{group}:{tenant_id}:{username}": USER_FAILURE_LIMIT,
        }


def _user_in_network(tenant_id: str, username: str, network: str) -> str:
    # The name is last: a name may hold any character.
    return f"place:{tenant_id}:{network}:{username}"
