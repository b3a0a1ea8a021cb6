"""A word for each tenant, another one after every change of what gateways remember of it.

A gateway reads the word with each request; what it remembers counts while the word is what it was before the gateway
asked for it. So a change is seen by every gateway from its answer on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from common.errors import Problem
from common.redis import Redis, RedisError
from common.telemetry import log

KEPT = 24 * 3600  # seconds; nothing is remembered for as long
CHANGING = ""  # the word of a tenant that is being changed, of which gateways remember nothing
CHANGING_FOR = 60  # seconds; a change whose service died has been made by then, or never will be


class TenantVersions:
    """Sets tenants' words. Raises RedisError where Redis does not answer, Overloaded where too much is asked of it."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    @asynccontextmanager
    async def invalidate_during(self, tenant_id: str) -> AsyncIterator[None]:
        """To be held around a change, which is not begun where gateways cannot be told of it.

        Once it is made it is answered, come what may: where the new word cannot be set gateways remember nothing of the
        tenant for a while, and are right.
        """
        await self._redis.set(tenant_version_key(tenant_id), CHANGING, ex=CHANGING_FOR)
        try:
            yield
        finally:
            try:
                await self.bump(tenant_id)
            except (RedisError, Problem) as error:
                log.warning("stamp_not_moved", tenant_id=tenant_id, error=type(error).__name__)

    async def bump(self, tenant_id: str) -> None:
        """Make gateways ask anew."""
        await self._redis.set(tenant_version_key(tenant_id), uuid4().hex, ex=KEPT)


def tenant_version_key(tenant_id: str) -> str:
    """The key under which Redis has a tenant's word; it has none where nothing was changed for long."""
    return f"stamp:{tenant_id}"
