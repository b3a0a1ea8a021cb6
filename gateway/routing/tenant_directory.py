"""Looks up tenants by the first segment of a path, and caches them for a few seconds."""

from functools import partial

from common.auth.internal_tokens import Caller
from common.caching import ResponseCache
from common.errors import Forbidden, NotFound, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import Address, Tenant, is_tenant_id

MAX_AGE = 3.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_TENANTS = 10_000


class NoSuchTenant(NotFound):
    code = "tenant_not_found"
    text = "There is no such tenant."


class NetworkNotAllowed(Forbidden):  # section 5.2
    code = "network_not_allowed"
    text = "This tenant does not take requests from your network address."


class TenantDirectory:
    """Looks up tenants at auth_service."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._tenants: ResponseCache[str, Tenant | None] = ResponseCache(
            max_age=MAX_AGE, limit=MAX_TENANTS, without_version=True
        )

    def last_known_allows(self, tenant_id: str, address: Address) -> bool:
        """Whether the last known settings of the tenant allow an address. Raises NoSuchTenant for an invalid id."""
        tenant = self._tenants.get_stale(tenant_id)
        if tenant is None and not is_tenant_id(tenant_id):
            raise NoSuchTenant
        return tenant is not None and tenant.allows(address)

    async def find(self, tenant_id: str, version: str | None, *, is_changing: bool = False) -> Tenant:
        """The tenant at a version. While it is `changing`, cached settings may be older than an answered change.

        Raises NoSuchTenant, or Unavailable if auth_service does not answer.
        """
        tenant = None if is_changing else self._tenants.get(tenant_id, version)
        if tenant is None:
            fetch = partial(self._fetch, tenant_id)
            tenant = await (fetch() if is_changing else self._tenants.get_or_fetch(tenant_id, version, fetch))
        if tenant is None:
            raise NoSuchTenant
        return tenant

    async def _fetch(self, tenant_id: str) -> Tenant | None:
        try:
            document = await self._auth_service.json(Caller.service(Tenant(tenant_id)), "find_tenant")
        except UpstreamProblem as problem:
            if problem.status == 404:
                return None
            raise
        return Tenant.from_document(document)
