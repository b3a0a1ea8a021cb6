"""client_registry as seen from here: it knows what a client must not see."""

from collections.abc import Set

from common.auth.callers import Caller
from common.service_client.client import ServiceClient


class ClientRegistry:
    """Asks for the blacklist."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def hidden_packages(self, caller: Caller) -> Set[str]:
        """The ids of the packages that this client must not see from this address. Raises Unavailable."""
        answer = await self._service.json(caller, "hidden_packages")
        return frozenset(answer["package_ids"])
