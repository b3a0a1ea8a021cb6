"""Catalogs as catalog_service answered them, so that one that did not change needs no hop.

An answer is remembered where it has an ETag and is not too large. It counts while the tenant's stamp stays, for some
seconds; then catalog_service is asked whether it is still so, and the megabytes stay where they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from common.bodies import accepted_coding, has_already
from common.caller import Caller, Kind
from common.client import Response, ServiceClient, problem_of
from common.turns import Turns
from gateway.clients import ClientDirectory
from gateway.remembered import Remembered

REMEMBERED = 30.0  # seconds
FETCHES = 4  # at once; each holds a whole catalog
PATIENCE = 30.0  # seconds, for a turn and then for each byte
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


@dataclass(frozen=True)
class View:
    """All that an answer depends on. `hidden` stands for the packages that are hidden from the caller."""

    tenant_id: str
    include_disabled: bool
    hidden: bytes
    coding: str


@dataclass(frozen=True)
class Catalog:
    """An answer."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Answer with it, or with 304 where the caller has it already."""
        if has_already(request, self.etag):
            kept = {name: value for name, value in self.headers.items() if not name.startswith("Content-")}
            return web.Response(status=304, headers=kept)
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
    """Asks catalog_service, and remembers answers within a budget of bytes."""

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory, *, budget: int) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._largest = budget // 2
        self._turns = Turns(FETCHES)
        self._answers: Remembered[View, Catalog | None] = Remembered(seconds=REMEMBERED, most=budget, size=_size)

    async def find(self, request: web.Request, caller: Caller, stamp: str | None) -> Catalog | None:
        """The catalog as this caller may see it; None where it has to be asked for by whoever wants it.

        Raises:
            Answered: catalog_service answered with a problem.
            Unavailable: a service did not answer.
            Overloaded: too many different catalogs are asked for at once.
        """
        include_disabled = QUERIES.get(request.rel_url.raw_query_string)
        if stamp is None or include_disabled is None:
            return None
        hidden = await self._clients.hidden_from(caller, stamp) if caller.kind is Kind.CLIENT else b""
        view = View(caller.tenant_id, include_disabled, hidden, accepted_coding(request))
        return await self._answers.of(view, stamp, lambda: self._ask(caller, view))

    async def _ask(self, caller: Caller, view: View) -> Catalog | None:
        before = self._answers.last(view)
        headers = {"Accept-Encoding": view.coding or "identity"}
        if before:
            headers["If-None-Match"] = before.etag
        async with (
            self._turns.one(PATIENCE),
            self._catalog_service.open(
                caller,
                "POST",
                ["get_packages"],
                query=f"include_disabled={'true' if view.include_disabled else 'false'}",
                headers=headers,
                patience=PATIENCE,
                streamed=True,
            ) as response,
        ):
            if response.status >= 400:
                raise await problem_of(response)
            found = before if response.status == 304 else await self._read(response)
        # What is hidden may have changed while we asked: then this is the catalog of another view.
        if found and caller.kind is Kind.CLIENT and await self._clients.ask_hidden_from(caller) != view.hidden:
            return None
        return found

    async def _read(self, response: Response) -> Catalog | None:
        """The answer, None where it is none to remember: it has no ETag, or too many bytes."""
        if "ETag" not in response.headers or (response.content_length or 0) > self._largest:
            return None
        body = bytearray()
        async for block in response.content.iter_any():
            body += block
            if len(body) > self._largest:
                return None
        return Catalog({name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}, bytes(body))


def _size(catalog: Catalog | None) -> int:
    return len(catalog.body) + OVERHEAD if catalog else OVERHEAD
