"""A version for each tenant, which changes with everything of the tenant that gateways cache.

A gateway reads the version with each request. A cached value is valid only while the version is the one from before
the value was fetched. All gateways therefore see a change as soon as it is answered.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from common.errors import Problem
from common.redis import Redis, RedisError
from common.telemetry import log

# The version that a gateway read before it called a service; the service may cache by it, too.
TENANT_VERSION_HEADER = "X-Internal-Tenant-Version"
VERSION_LIFETIME = 24 * 3600  # seconds; gateways cache nothing for as long
CHANGING = ""  # the version of a tenant that is being changed: gateways cache nothing of it
CHANGE_TIMEOUT = 60  # seconds; a change whose service died is done by then, or never will be


class TenantVersions:
    """Sets tenants' versions. Raises RedisError if Redis does not answer, Overloaded if too many calls wait."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    @asynccontextmanager
    async def invalidate_during(self, tenant_id: str) -> AsyncIterator[None]:
        """Invalidate gateways' caches of a tenant around the change in the block.

        Without Redis, the change does not begin. A change that was made is answered even if the new version cannot be
        set: until `CHANGE_TIMEOUT` gateways then cache nothing of the tenant, and stay correct.
        """
        await self._redis.set(tenant_version_key(tenant_id), CHANGING, ex=CHANGE_TIMEOUT)
        try:
            yield
        finally:
            try:
                await self.bump(tenant_id)
            except (RedisError, Problem) as error:
                log.warning("stamp_not_moved", tenant_id=tenant_id, error=type(error).__name__)

    async def bump(self, tenant_id: str) -> None:
        """Invalidate gateways' caches of a tenant."""
        await self._redis.set(tenant_version_key(tenant_id), uuid4().hex, ex=VERSION_LIFETIME)


def tenant_version_key(tenant_id: str) -> str:
    """The Redis key of a tenant's version; absent if nothing changed for a long time."""
    return f"stamp:{tenant_id}"
