"""Calls to client_registry."""

from aiohttp import web

from common.auth.internal_tokens import HIDDEN, Caller, Kind, hidden_digest
from common.caching import FifoCache
from common.http.middleware import caller_of
from common.service_client.client import ServiceClient

MEMORY = 4 << 20  # bytes of cached sets of hidden packages
OVERHEAD = 128  # bytes that an id takes beside its characters


class ClientRegistry:
    """Reads the blacklist. Sets of hidden packages are cached by their digest, so they never become stale."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service
        self._sets: FifoCache[tuple[str, str], frozenset[str]] = FifoCache(MEMORY, size=_size)

    async def hidden_from_caller(self, request: web.Request) -> frozenset[str]:
        """Return the ids of the packages that are hidden from the caller of a request.

        The gateway has asked for them already and sends their digest: client_registry is asked for unknown digests
        only. Raises Unavailable if the blacklist cannot be read: it never counts as empty.
        """
        caller, digest = caller_of(request), request.headers.get(HIDDEN)
        if caller.kind is not Kind.CLIENT or digest == "":
            return frozenset()
        known = self._sets.get((caller.tenant_id, digest)) if digest else None
        return await self._fetch(caller) if known is None else known

    async def _fetch(self, caller: Caller) -> frozenset[str]:
        hidden = frozenset((await self._service.json(caller, "hidden_packages"))["package_ids"])
        self._sets.put((caller.tenant_id, hidden_digest(hidden)), hidden)
        return hidden


def _size(package_ids: frozenset[str]) -> int:
    return sum(map(len, package_ids)) + OVERHEAD * (len(package_ids) + 1)
