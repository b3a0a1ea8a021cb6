"""The rings of a tenant: new versions reach one group of clients after the other. catalog_service has the policy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from common.auth.internal_tokens import Caller
from common.caching import ResponseCache
from common.service_client.client import ServiceClient
from common.tenants import Address, bounds, plain_address

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_TENANTS = 10_000


class ReleasePolicy:
    """A tenant's policy for releases; `settings` is all of it, as `server_information` shows it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.rings: tuple[str, ...] = tuple(settings["rings"])
        rules = settings["ring_rules"]
        # The rules for users of Entra ID: an app role or group id, and the ring.
        self.app_roles = tuple((rule["app_role"], rule["ring"]) for rule in rules if "app_role" in rule)
        # The rules by network: version of IP, first and last address as numbers, and the ring.
        self._ranges = tuple(
            (first.version, int(first), int(last), rule["ring"])
            for rule in rules
            if "network" in rule
            for first, last in [bounds(rule["network"])]
        )

    def ring_of(self, address: Address, chosen: str = "") -> str:
        """The ring of an identified client; "" for the last one, which has all clients without another ring.

        `chosen` is the ring that the client or its app roles have, else the first rule with the client's network
        decides. A ring that the tenant does not have counts as the last one.
        """
        earlier = self.rings[:-1]
        if not earlier:
            return ""
        ring = chosen or self._ring_of_network(plain_address(address))
        return ring if ring in earlier else ""

    def _ring_of_network(self, address: Address) -> str:
        number, version = int(address), address.version
        ranges = self._ranges
        return next((ring for its, first, last, ring in ranges if its == version and first <= number <= last), "")


class PolicyDirectory:
    """Looks up policies at catalog_service, and caches them. Raises Unavailable if it does not answer."""

    def __init__(self, catalog_service: ServiceClient) -> None:
        self._catalog_service = catalog_service
        self._policies: ResponseCache[str, ReleasePolicy] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)

    async def find(self, caller: Caller, version: str | None) -> ReleasePolicy:
        """The policy of the caller's tenant, at a version of the tenant."""
        if (policy := self._policies.get(caller.tenant_id, version)) is not None:
            return policy
        return await self._policies.get_or_fetch(caller.tenant_id, version, partial(self._fetch, caller))

    async def in_ring(self, client: Caller, version: str | None) -> Caller:
        """A client in its ring. Before, its `ring` is the chosen one."""
        policy = await self.find(client, version)
        ring = policy.ring_of(client.address, client.ring)
        return client if ring == client.ring else client.as_client(client.client_id, ring)

    async def _fetch(self, caller: Caller) -> ReleasePolicy:
        return ReleasePolicy(await self._catalog_service.json(Caller.service(caller.tenant), "find_release_policy"))
