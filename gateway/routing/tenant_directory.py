"""From the first part of a path to a tenant, remembered for a few seconds."""

from common.auth.callers import Caller
from common.errors import Forbidden, NotFound, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import Address, Tenant, VersionKey, is_tenant_id
from gateway.caching.response_cache import ResponseCache

REMEMBERED = 3.0  # seconds: a change that gateways could not be told of is in force within this time
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
        self._known: ResponseCache[str, Tenant | None] = ResponseCache(
            seconds=REMEMBERED, most=REMEMBERED_AT_MOST, unstamped=True
        )

    def welcomes(self, tenant_id: str, address: Address) -> bool:
        """Whether the tenant lets a caller in, going by what was last heard of it. Raises NoSuchTenant."""
        tenant = self._known.get_stale(tenant_id)
        if tenant is None and not is_tenant_id(tenant_id):
            raise NoSuchTenant
        return tenant is not None and tenant.allows(address)

    async def find(self, tenant_id: str, stamp: str | None, *, changing: bool = False) -> Tenant:
        """Where it is `changing`, what is remembered may be older than a change that was answered already.

        Raises NoSuchTenant, or Unavailable where auth_service does not answer.
        """
        tenant = await self._ask(tenant_id) if changing else self._known.get(tenant_id, stamp)
        if tenant is None and not changing:
            tenant = await self._known.get_or_fetch(tenant_id, stamp, lambda: self._ask(tenant_id))
        if tenant is None:
            raise NoSuchTenant
        return tenant

    async def _ask(self, tenant_id: str) -> Tenant | None:
        try:
            found = await self._auth_service.json(Caller.service(Tenant(tenant_id)), "find_tenant")
        except UpstreamProblem as problem:
            if problem.status == 404:
                return None
            raise
        return Tenant(
            tenant_id=found["tenant_id"],
            client_authentication=found["client_authentication"],
            allowed_networks=tuple(found["allowed_networks"]),
            storage_quota=found["storage_quota"],
            max_clients=found["max_clients"],
            version_key=VersionKey(found["version_key"]),
            strict_installers=found.get("strict_installers", False),  # An auth_service of before does not say.
            source_agreements=found.get("source_agreements", ""),
        )


def check_network(tenant: Tenant, address: Address) -> None:
    """Raise NetworkNotAllowed for a caller whom the tenant's networks do not hold (section 5.2)."""
    if not tenant.allows(address):
        raise NetworkNotAllowed
