"""Caches catalogs, so that a request for an unchanged catalog needs no call of catalog_service.

A catalog is cached if it has an ETag and fits into memory. It is valid for some seconds while the tenant's version
stays the same. Then the gateway revalidates it: catalog_service answers 304 if it is unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple
from weakref import finalize

from aiohttp import web
from multidict import CIMultiDict

from common.auth.internal_tokens import HIDDEN, Caller, Kind
from common.caching.response_cache import ResponseCache
from common.http.bodies import if_none_match, negotiate_encoding
from common.http.middleware import BytesResponse
from common.service_client.client import Response, ServiceClient, raise_problem
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.client_directory import ClientDirectory

MAX_AGE = 30.0  # seconds
WRITE_SIZE = 256 << 10  # bytes of one write: a slow caller does not have a copy of the whole catalog buffered
CACHED_HEADERS = ("Cache-Control", "Content-Encoding", "Content-Type", "ETag", "Vary")
OVERHEAD = 1024  # bytes that an entry takes beside its body
QUERIES = {
    "": False,
    "include_disabled=true": True,
    "include_disabled=false": False,
    "include_disabled=1": True,
    "include_disabled=0": False,
}


class View(NamedTuple):
    """Everything that a catalog depends on. `hidden` is the digest of the caller's hidden package ids."""

    tenant_id: str
    include_disabled: bool
    hidden: str
    encoding: str


@dataclass(frozen=True, eq=False)
class Catalog:
    """The response with a catalog."""

    headers: Mapping[str, str]
    body: bytearray

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    @cached_property
    def not_modified_headers(self) -> CIMultiDict[str]:
        return CIMultiDict((name, value) for name, value in self.headers.items() if not name.startswith("Content-"))

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send the catalog, or 304 if the caller has it already."""
        if if_none_match(request, self.etag):
            return BytesResponse(status=304, headers=self.not_modified_headers)
        response = web.StreamResponse(headers=self.headers)
        response.content_length = len(self.body)
        try:
            await response.prepare(request)
            body = memoryview(self.body)
            for start in range(0, len(body), WRITE_SIZE):
                await response.write(body[start : start + WRITE_SIZE])
            await response.write_eof()
        except ConnectionResetError:
            pass  # The caller closed the connection.
        return response


class CatalogCache:
    """Catalogs of catalog_service within a budget of bytes.

    Catalogs that are being received, or sent to slow callers, count too. If they fill the budget, the cache holds
    nothing, and catalogs are streamed.
    """

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory, *, budget: int) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._budget = budget
        self.used_bytes = 0  # of all catalogs in memory
        self.count = 0  # of all catalogs in memory
        self._catalogs: ResponseCache[View, Catalog | None] = ResponseCache(max_age=MAX_AGE, limit=budget, size=_size)

    async def find(self, request: web.Request, caller: Caller) -> Catalog | None:
        """The catalog for this caller; None to forward it. Raises UpstreamProblem, Unavailable or Overloaded."""
        version = request[TENANT_VERSION]
        include_disabled = QUERIES.get(request.rel_url.raw_query_string)
        if version is None or include_disabled is None:
            return None
        hidden = await self._clients.hidden_from(caller, version) if caller.kind is Kind.CLIENT else ""
        view = View(caller.tenant_id, include_disabled, hidden, negotiate_encoding(request))
        if (catalog := self._catalogs.get(view, version)) is not None:
            return catalog
        return await self._catalogs.get_or_fetch(view, version, partial(self._fetch, caller, view))

    async def _fetch(self, caller: Caller, view: View) -> Catalog | None:
        cached = self._catalogs.get_stale(view)
        headers = {"Accept-Encoding": view.encoding or "identity", HIDDEN: view.hidden}
        if cached:
            headers["If-None-Match"] = cached.etag
        query = f"include_disabled={'true' if view.include_disabled else 'false'}"
        async with self._catalog_service.open(
            caller, "POST", ["get_packages"], query=query, headers=headers, streamed=True
        ) as response:
            await raise_problem(response)
            if response.headers.get(HIDDEN, "") != view.hidden:
                return None  # The hidden packages changed after we read them: this is the catalog of another view.
            if response.status == 304:
                return cached
            cached = None  # Memory may not hold both.
            return await self._receive(response)

    async def _receive(self, response: Response) -> Catalog | None:
        """The catalog of a response; None if it is too large, has no ETag, or no length.

        Without a length, catalog_service sends it while it reads it from its database, which may take long.
        """
        length = response.content_length
        if "ETag" not in response.headers or length is None or not self._make_room(length):
            return None
        headers = {name: response.headers[name] for name in CACHED_HEADERS if name in response.headers}
        catalog = Catalog(headers, bytearray(length))
        self.used_bytes += length
        self.count += 1
        finalize(catalog, self._release, length)
        received = 0
        async for block in response.content.iter_any():
            catalog.body[received : received + len(block)] = block
            received += len(block)
        return catalog

    def _make_room(self, length: int) -> bool:
        """Evict the oldest catalogs until so many bytes fit. Returns False if they cannot fit."""
        if length > self._budget // 2:
            return False
        while self.used_bytes + length > self._budget:
            if not self._catalogs.evict_oldest():
                return False
        return True

    def _release(self, length: int) -> None:
        self.used_bytes -= length
        self.count -= 1


def _size(catalog: Catalog | None) -> int:
    return len(catalog.body) + OVERHEAD if catalog else OVERHEAD
