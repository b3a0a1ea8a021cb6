"""How much of its limits a tenant uses, asked of the services that know."""

import asyncio
from dataclasses import dataclass

from common.auth.callers import Caller
from common.service_client.client import ServiceClient


@dataclass(frozen=True)
class Usage:
    """Bytes of linked installers, bytes promised to open transfers, damaged installers, and registered clients."""

    storage_used: int
    storage_reserved: int
    damaged_installers: int
    clients: int


class Usages:
    """Asks upload_service and client_registry. Raises Unavailable where one does not answer."""

    def __init__(self, upload_service: ServiceClient, client_registry: ServiceClient) -> None:
        self._upload_service = upload_service
        self._client_registry = client_registry

    async def of(self, caller: Caller) -> Usage:
        storage, clients = await asyncio.gather(
            self._upload_service.json(caller, "storage_usage"), self._client_registry.json(caller, "client_usage")
        )
        return Usage(
            storage["storage_used"], storage["storage_reserved"], storage["damaged_installers"], clients["clients"]
        )
