"""A word for each tenant, another one after every change of what gateways remember of it.

A gateway reads the word with each request; what it remembers counts while the word is what it was before the gateway
asked for it. So a change is seen by every gateway from its answer on. A change whose service died before it was
answered is seen when what is remembered has grown too old.
"""

from uuid import uuid4

from common.redis import Redis

KEPT = 24 * 3600  # seconds; nothing is remembered for as long


class Stamps:
    """Sets tenants' words."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    async def move(self, tenant_id: str) -> None:
        """Make gateways ask anew; called when a change is committed, and before it is answered.

        Raises RedisError where Redis does not answer.
        """
        await self._redis.set(stamp_key(tenant_id), uuid4().hex, ex=KEPT)


def stamp_key(tenant_id: str) -> str:
    """The key under which Redis has a tenant's word; it has none, "", where nothing was changed for long."""
    return f"stamp:{tenant_id}"
