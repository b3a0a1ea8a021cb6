"""How much of its limits a tenant uses: upload_service knows the storage, client_registry the clients."""

import asyncio
from collections.abc import Mapping

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient


class UsageReader:
    """Reads a tenant's usage from both services. Raises Unavailable if one does not answer."""

    def __init__(self, upload_service: ServiceClient, client_registry: ServiceClient) -> None:
        self._upload_service = upload_service
        self._client_registry = client_registry

    async def usage_of(self, caller: Caller) -> Mapping[str, int]:
        """`storage_used` and `storage_reserved` in bytes, `damaged_installers` and `clients`."""
        storage, clients = await asyncio.gather(
            self._upload_service.json(caller, "storage_usage"), self._client_registry.json(caller, "client_usage")
        )
        return {**storage, **clients}
