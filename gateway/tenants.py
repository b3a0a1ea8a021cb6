"""From the first part of a path to a tenant, remembered for a few seconds."""

import asyncio
import time

from common.caller import Caller
from common.client import ServiceClient
from common.errors import Answered, Forbidden, NotFound
from common.tenants import Address, Tenant, VersionKey, is_tenant_id

REMEMBERED = 3.0  # seconds: a change of a tenant is in force within this time
REMEMBERED_AT_MOST = 10_000  # tenants


class NoSuchTenant(NotFound):
    code = "tenant_not_found"

    def __init__(self) -> None:
        super().__init__("There is no such tenant.")


class NetworkNotAllowed(Forbidden):
    code = "network_not_allowed"

    def __init__(self) -> None:
        super().__init__("This tenant does not take requests from your network address.")


class TenantDirectory:
    """Finds tenants by asking auth_service."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._known: dict[str, tuple[float, Tenant | None]] = {}
        self._asking: dict[str, asyncio.Task[Tenant | None]] = {}

    async def find(self, tenant_id: str) -> Tenant:
        """Raises NoSuchTenant, or Unavailable where auth_service does not answer."""
        if not is_tenant_id(tenant_id):
            raise NoSuchTenant
        until, tenant = self._known.get(tenant_id, (0.0, None))
        if time.monotonic() >= until:
            tenant = await self._ask_once(tenant_id)
        if tenant is None:
            raise NoSuchTenant
        return tenant

    async def _ask_once(self, tenant_id: str) -> Tenant | None:
        """What auth_service says; a crowd that comes while it is being asked hears the same answer."""
        asking = self._asking.get(tenant_id)
        if asking is None:
            asking = self._asking[tenant_id] = asyncio.create_task(self._ask(tenant_id))
            asking.add_done_callback(lambda _: self._asking.pop(tenant_id))
        return await asyncio.shield(asking)

    def _remember(self, tenant_id: str, tenant: Tenant | None) -> None:
        self._known.pop(tenant_id, None)
        if len(self._known) >= REMEMBERED_AT_MOST:
            del self._known[next(iter(self._known))]
        self._known[tenant_id] = (time.monotonic() + REMEMBERED, tenant)

    async def _ask(self, tenant_id: str) -> Tenant | None:
        try:
            found = await self._auth_service.ask(Caller.service(Tenant(tenant_id)), "find_tenant")
        except Answered as problem:
            if problem.status != 404:
                raise
            self._remember(tenant_id, None)
            return None
        tenant = Tenant(
            tenant_id=found["tenant_id"],
            client_authentication=found["client_authentication"],
            allowed_networks=tuple(found["allowed_networks"]),
            storage_quota=found["storage_quota"],
            max_clients=found["max_clients"],
            version_key=VersionKey(found["version_key"]),
        )
        self._remember(tenant_id, tenant)
        return tenant


def check_network(tenant: Tenant, address: Address) -> None:
    """Raise NetworkNotAllowed for a caller whom the tenant's networks do not hold (section 5.2)."""
    if not tenant.allows(address):
        raise NetworkNotAllowed
