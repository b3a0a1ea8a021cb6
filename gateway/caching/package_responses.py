"""Caches responses about one package for a moment: its versions, its winget manifests, and winget searches.

A fleet asks for the same packages at the same time. A manifest has one response for each contract of winget's.
"""

from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from common.auth.internal_tokens import HIDDEN, Caller, Kind
from common.caching import ResponseCache
from common.errors import Overloaded, UpstreamProblem
from common.http.bodies import read_body
from common.http.middleware import REVISION_HEADER, BytesResponse
from common.redis import TENANT_VERSION_HEADER
from common.service_client.client import SMALL, ServiceClient, raise_problem
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import ClientDirectory
from gateway.routing import Target
from gateway.winget import CONTRACTS

MAX_AGE = 1.0  # seconds; a response has signed addresses, which expire
SEARCH_MAX_AGE = 30.0  # seconds
MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes that an entry takes beside its body and its key
PATH_LIMIT, TOKEN_LIMIT = 1024, 256  # characters of a key


class _Key(NamedTuple):
    """Everything that a response depends on. `hidden` is the digest of the caller's hidden package ids.

    `audience` is the ring whose versions the caller sees. `site_url` is the host of installers; searches name none.
    """

    tenant_id: str
    segments: tuple[str, ...]
    base_url: str
    query: str
    body: bytes
    token: str
    contract: str
    hidden: str
    audience: str
    site_url: str


@dataclass(frozen=True)
class _Response:
    """A response of catalog_service. `body` is None if it is too long to be cached.

    `is_private`: other packages were hidden than the key says, so it is for the caller who fetched it only. `key_size`
    is in bytes.
    """

    status: int
    body: bytes | None
    is_cacheable: bool
    is_private: bool = False
    key_size: int = 0

    @property
    def size(self) -> int:
        # The cache keeps nothing that is larger than itself.
        return len(self.body or b"") + self.key_size + OVERHEAD if self.is_cacheable else MEMORY + 1


class PackageResponseCache:
    """Responses of catalog_service about packages."""

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._responses, self._searches = (
            ResponseCache[_Key, _Response](max_age=max_age, limit=MEMORY, size=lambda response: response.size)
            for max_age in (MAX_AGE, SEARCH_MAX_AGE)
        )

    async def find(self, request: web.Request, caller: Caller, target: Target) -> web.Response | None:
        """The response; None if the request must be forwarded. Raises UpstreamProblem or Unavailable."""
        operation, version = target.operation, request[TENANT_VERSION]
        is_search = operation.method == "POST"
        if version is None or request.method == "HEAD" or (request.body_exists and not is_search):
            return None
        query, token, contract, hidden = request.rel_url.raw_query_string, "", "", ""
        if operation.is_winget:
            token = request.headers.get("ContinuationToken", "")
            contract = request.headers.get("Version") or CONTRACTS[0]  # the default of catalog_service
            is_long = len(request.raw_path) > PATH_LIMIT or len(token) > TOKEN_LIMIT
            if contract not in CONTRACTS or is_long or not token.isascii():  # Continuation tokens are ASCII.
                return None
            if caller.kind is Kind.CLIENT:
                hidden = await self._clients.hidden_from(caller, version)
        elif query:
            return None
        body = await read_body(request, operation.body_limit) if is_search else b""
        path = caller.tenant_id, target.segments, caller.base_url
        site_url = "" if is_search else caller.site_url
        key = _Key(*path, query, body, token, contract, hidden, caller.audience, site_url)
        cache = self._searches if is_search else self._responses
        response = cache.get(key, version)
        if response is None or response.is_private:
            response = await self._fetch_shared(cache, caller, target, key, version)
        if response.body is None:
            return None
        if response.status == 204:
            return BytesResponse(status=204)
        return BytesResponse(body=response.body, content_type="application/json")

    async def _fetch_shared(
        self, cache: ResponseCache[_Key, _Response], caller: Caller, target: Target, key: _Key, version: str
    ) -> _Response:
        """The response to concurrent requests with one key, or one of the caller's own.

        The caller's own is needed if the shared response is private to another caller, or if the limit on searches from
        another caller's network refused it.
        """
        is_own = False

        async def fetch() -> _Response:
            nonlocal is_own
            is_own = True
            return await self._fetch(caller, target, key, version)

        try:
            response = await cache.get_or_fetch(key, version, fetch)
        except UpstreamProblem as problem:
            if is_own or problem.status != Overloaded.status:
                raise
            return await fetch()
        return await fetch() if response.is_private and not is_own else response

    async def _fetch(self, caller: Caller, target: Target, key: _Key, version: str) -> _Response:
        method, headers = target.operation.method, {"Version": key.contract, "ContinuationToken": key.token}
        headers = {name: value for name, value in headers.items() if value}
        headers |= {HIDDEN: key.hidden, TENANT_VERSION_HEADER: version}
        async with self._catalog_service.open(
            caller,
            method,
            target.segments,
            operation=target.operation.name,
            query=key.query,
            timeout=target.operation.timeout,
            headers=headers,
            data=key.body or None,
        ) as response:
            await raise_problem(response)
            is_large = response.status == 200 and (response.content_length is None or response.content_length > SMALL)
            if is_large and method == "GET":  # It is requested again and streamed; a request body is not sent twice.
                return _Response(200, None, is_cacheable=True)
            # Without a revision, the package is being changed. With other hidden packages, the key is another.
            is_private = response.headers.get(HIDDEN, "") != key.hidden
            is_cacheable = not is_private and not is_large and REVISION_HEADER in response.headers
            key_size = len(key.body) + 4 * sum(map(len, (*key.segments, key.query, key.token)))
            return _Response(response.status, await response.read(), is_cacheable, is_private, key_size)


PACKAGE_RESPONSES = web.AppKey("package_responses", PackageResponseCache)
