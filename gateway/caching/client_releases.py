"""What `client_version` answers, which is the same for all of a tenant's callers at one address of ours."""

from common.auth.callers import Caller
from common.service_client.client import ServiceClient, problem_of
from gateway.caching.response_cache import ResponseCache

REMEMBERED = 1.0  # seconds; an answer may have an address in it that is good for a while only
REMEMBERED_AT_MOST = 10_000  # tenants


class Releases:
    """Asks client_registry for the latest release of the client program."""

    def __init__(self, client_registry: ServiceClient) -> None:
        self._client_registry = client_registry
        self._latest: ResponseCache[tuple[str, str], bytes] = ResponseCache(seconds=REMEMBERED, most=REMEMBERED_AT_MOST)

    async def latest(self, caller: Caller, stamp: str | None) -> bytes:
        """The answer in JSON. Raises Answered or Unavailable."""
        key = caller.tenant_id, caller.base_url
        if known := self._latest.get(key, stamp):
            return known

        async def ask() -> bytes:
            async with self._client_registry.open(caller, "POST", ["client_version"]) as response:
                if response.status >= 400:
                    raise await problem_of(response)
                return await response.read()

        return await self._latest.get_or_fetch(key, stamp, ask)
