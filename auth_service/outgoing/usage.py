"""How much of its limits a tenant uses: upload_service knows the storage, client_registry the clients."""

import asyncio
from collections.abc import Mapping
from functools import partial

from common.auth.internal_tokens import Caller
from common.caching import ResponseCache
from common.service_client.client import ServiceClient

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_TENANTS = 10_000


class UsageReader:
    """Reads a tenant's usage from both services. Raises Unavailable if one does not answer.

    The number of clients changes with the tenant's version only, so it is cached. The storage changes with each chunk.
    """

    def __init__(self, upload_service: ServiceClient, client_registry: ServiceClient) -> None:
        self._upload_service = upload_service
        self._client_registry = client_registry
        self._clients: ResponseCache[str, int] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)

    async def usage_of(self, caller: Caller, version: str | None) -> Mapping[str, int]:
        """`storage_used` and `storage_reserved` in bytes, `damaged_installers` and `clients`.

        `version` is the tenant's version from before the request; None if nothing may be cached.
        """
        storage = self._upload_service.json(caller, "storage_usage")
        clients = self._clients.get(caller.tenant_id, version)
        if clients is not None:
            return {**await storage, "clients": clients}
        count = self._clients.get_or_fetch(caller.tenant_id, version, partial(self._count_clients, caller))
        usage, clients = await asyncio.gather(storage, count)
        return {**usage, "clients": clients}

    async def _count_clients(self, caller: Caller) -> int:
        return int((await self._client_registry.json(caller, "client_usage"))["clients"])
