"""Calls to client_registry."""

from collections.abc import Set

from common.auth.callers import Caller
from common.service_client.client import ServiceClient


class ClientRegistry:
    """Reads the blacklist."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def hidden_packages(self, caller: Caller) -> Set[str]:
        """Return the ids of the packages hidden from this client at its address. Raises Unavailable."""
        answer = await self._service.json(caller, "hidden_packages")
        return frozenset(answer["package_ids"])
