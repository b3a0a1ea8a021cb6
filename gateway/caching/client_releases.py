"""Caches the responses of `client_version`, which are the same for all callers of a tenant at one base URL."""

from functools import partial

from common.auth.callers import Caller
from common.service_client.client import ServiceClient, raise_problem
from gateway.caching.response_cache import ResponseCache

MAX_AGE = 1.0  # seconds; a response may have a signed address, which expires
MAX_TENANTS = 10_000


class ClientReleaseCache:
    """The latest releases of the client program, from client_registry."""

    def __init__(self, client_registry: ServiceClient) -> None:
        self._client_registry = client_registry
        self._latest: ResponseCache[tuple[str, str], bytes] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)

    async def latest(self, caller: Caller, version: str | None) -> bytes:
        """The response in JSON. Raises UpstreamProblem or Unavailable."""
        key = caller.tenant_id, caller.base_url
        return await self._latest.get_or_fetch(key, version, partial(self._fetch, caller))

    async def _fetch(self, caller: Caller) -> bytes:
        async with self._client_registry.open(caller, "POST", ["client_version"]) as response:
            await raise_problem(response)
            return await response.read()
