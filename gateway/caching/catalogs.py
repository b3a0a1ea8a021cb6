"""Catalogs as catalog_service answered them, so that one that did not change needs no hop.

An answer is remembered where it has an ETag and there is room for it. It counts while the tenant's stamp stays, for
some seconds; then catalog_service is asked whether it is still so, and the megabytes stay where they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import finalize

from aiohttp import web
from multidict import CIMultiDict

from common.auth.callers import HIDDEN, Caller, Kind
from common.http.bodies import if_none_match, negotiate_encoding
from common.http.middleware import BytesResponse
from common.service_client.client import Response, ServiceClient, problem_of
from gateway.auth.client_directory import ClientDirectory
from gateway.caching.response_cache import ResponseCache

REMEMBERED = 30.0  # seconds
SLICE = 256 << 10  # bytes that are written at once: a caller who reads slowly has no copy of a catalog waiting
KEPT_HEADERS = ("Cache-Control", "Content-Encoding", "Content-Type", "ETag", "Vary")
OVERHEAD = 1024  # bytes that an answer takes beside its own
QUERIES = {
    "": False,
    "include_disabled=true": True,
    "include_disabled=false": False,
    "include_disabled=1": True,
    "include_disabled=0": False,
}


class View(NamedTuple):
    """All that an answer depends on. `hidden` stands for the packages that are hidden from the caller."""

    tenant_id: str
    include_disabled: bool
    hidden: str
    coding: str


@dataclass(frozen=True, eq=False)
class Catalog:
    """An answer."""

    headers: Mapping[str, str]
    body: bytearray

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    @cached_property
    def unchanged(self) -> CIMultiDict[str]:
        """What is said of it to a caller who has it already."""
        return CIMultiDict((name, value) for name, value in self.headers.items() if not name.startswith("Content-"))

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Answer with it, or with 304 where the caller has it already."""
        if if_none_match(request, self.etag):
            return BytesResponse(status=304, headers=self.unchanged)
        response = web.StreamResponse(headers=self.headers)
        response.content_length = len(self.body)
        try:
            await response.prepare(request)
            whole = memoryview(self.body)
            for start in range(0, len(whole), SLICE):
                await response.write(whole[start : start + SLICE])
            await response.write_eof()
        except ConnectionResetError:
            pass  # The caller has gone; that is theirs to do.
        return response


class Catalogs:
    """Asks catalog_service, and remembers answers within a budget of bytes.

    What is being read and what is on its way to callers counts too: where many are slow, and catalogs change meanwhile,
    there comes to be less room to remember, and at last none. Then catalogs pass through.
    """

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory, *, budget: int) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._budget = budget
        self.taken = 0  # bytes of all catalogs that anybody has
        self.count = 0  # of those
        self._answers: ResponseCache[View, Catalog | None] = ResponseCache(seconds=REMEMBERED, most=budget, size=_size)

    async def find(self, request: web.Request, caller: Caller, stamp: str | None) -> Catalog | None:
        """The catalog as this caller may see it; None where it has to be asked for by whoever wants it.

        Raises:
            Answered: catalog_service answered with a problem.
            Unavailable: a service did not answer.
            Overloaded: too much is asked of it at once.
        """
        include_disabled = QUERIES.get(request.rel_url.raw_query_string)
        if stamp is None or include_disabled is None:
            return None
        hidden = await self._clients.hidden_from(caller, stamp) if caller.kind is Kind.CLIENT else ""
        view = View(caller.tenant_id, include_disabled, hidden, negotiate_encoding(request))
        if known := self._answers.get(view, stamp):
            return known
        return await self._answers.get_or_fetch(view, stamp, lambda: self._ask(caller, view))

    async def _ask(self, caller: Caller, view: View) -> Catalog | None:
        before = self._answers.get_stale(view)
        headers = {"Accept-Encoding": view.coding or "identity"}
        if before:
            headers["If-None-Match"] = before.etag
        async with self._catalog_service.open(
            caller,
            "POST",
            ["get_packages"],
            query=f"include_disabled={'true' if view.include_disabled else 'false'}",
            headers=headers,
            streamed=True,
        ) as response:
            if response.status >= 400:
                raise await problem_of(response)
            if response.headers.get(HIDDEN, "") != view.hidden:
                return None  # What is hidden has changed since we asked for that: it is the catalog of another view.
            if response.status == 304:
                return before
            before = None  # There may not be room for both.
            return await self._read(response)

    async def _read(self, response: Response) -> Catalog | None:
        """The answer, None where it is none to remember.

        It has no ETag, too many bytes, or no length: then it is being made while it is sent, and that may take long.
        """
        length = response.content_length
        if "ETag" not in response.headers or length is None or not self._make_room(length):
            return None
        headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        catalog = Catalog(headers, bytearray(length))
        self.taken += length
        self.count += 1
        finalize(catalog, self._give_back, length)
        received = 0
        async for block in response.content.iter_any():
            catalog.body[received : received + len(block)] = block
            received += len(block)
        return catalog

    def _make_room(self, length: int) -> bool:
        """Forget what was remembered first, as much as is needed; whether there is room for so many bytes then."""
        if length > self._budget // 2:
            return False
        while self.taken + length > self._budget:
            if not self._answers.evict_oldest():
                return False
        return True

    def _give_back(self, length: int) -> None:
        self.taken -= length
        self.count -= 1


def _size(catalog: Catalog | None) -> int:
    return len(catalog.body) + OVERHEAD if catalog else OVERHEAD
