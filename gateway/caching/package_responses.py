"""What a package has, as catalog_service answered it: remembered for a moment where nothing changes it.

That is the list of a package's versions, its manifest, of which there is one for each contract of winget's, and what
winget searches for: a fleet asks for the same programs.
"""

from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from common.auth.callers import HIDDEN, Caller, Kind
from common.errors import Overloaded, UpstreamProblem
from common.http.bodies import read_body
from common.http.middleware import REVISION_HEADER, BytesResponse
from common.service_client.client import SMALL, ServiceClient, problem_of
from gateway.auth.client_directory import ClientDirectory
from gateway.caching.response_cache import ResponseCache
from gateway.routing.target import Target
from gateway.winget import CONTRACTS

REMEMBERED = 1.0  # seconds; an answer has addresses in it that are good for a while only
SEARCHES_REMEMBERED = 30.0  # seconds
MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes that an answer takes beside its own
ADDRESS_LIMIT, TOKEN_LIMIT = 1024, 256  # characters of what an answer is remembered by


class _Asked(NamedTuple):
    """All that an answer depends on. `hidden` stands for the packages that are hidden from the caller."""

    tenant_id: str
    segments: tuple[str, ...]
    base_url: str
    query: str
    body: bytes
    token: str
    contract: str
    hidden: str


@dataclass(frozen=True)
class _Answer:
    """What catalog_service answered: no body where it is too long to be kept, `lasting` where nothing changes it.

    `is_private`: other packages were hidden than in the question, so it is for nobody but the caller in whose name it
    was asked. `beside` are the bytes of what was asked.
    """

    status: int
    body: bytes | None
    lasting: bool
    is_private: bool = False
    beside: int = 0

    @property
    def size(self) -> int:
        return (
            len(self.body or b"") + self.beside + OVERHEAD if self.lasting else MEMORY + 1
        )  # for which there is no room


class Listings:
    """Asks catalog_service what a package has."""

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._answers, self._searches = (
            ResponseCache[_Asked, _Answer](seconds=seconds, most=MEMORY, size=lambda answer: answer.size)
            for seconds in (REMEMBERED, SEARCHES_REMEMBERED)
        )

    async def find(
        self, request: web.Request, caller: Caller, target: Target, stamp: str | None
    ) -> web.Response | None:
        """The answer; None where it has to be asked for by whoever wants it.

        Raises:
            Answered: catalog_service answered with a problem.
            Unavailable: a service did not answer.
        """
        operation = target.operation
        searching = operation.method == "POST"
        if stamp is None or request.method == "HEAD" or (request.body_exists and not searching):
            return None
        query, token, contract, hidden = request.rel_url.raw_query_string, "", "", ""
        if operation.of_winget:
            token = request.headers.get("ContinuationToken", "")
            contract = request.headers.get("Version") or CONTRACTS[0]  # as catalog_service takes it
            long = len(request.raw_path) > ADDRESS_LIMIT or len(token) > TOKEN_LIMIT
            if contract not in CONTRACTS or long or not token.isascii():  # A page's token is of ASCII.
                return None
            if caller.kind is Kind.CLIENT:
                hidden = await self._clients.hidden_from(caller, stamp)
        elif query:
            return None
        body = await read_body(request, operation.body_limit) if searching else b""
        asked = _Asked(caller.tenant_id, target.segments, caller.base_url, query, body, token, contract, hidden)
        kept = self._searches if searching else self._answers
        answer = kept.get(asked, stamp) or await self._ask_together(kept, caller, target, asked, stamp)
        if answer.body is None:
            return None
        if answer.status == 204:
            return BytesResponse(status=204)
        return BytesResponse(body=answer.body, content_type="application/json")

    async def _ask_together(
        self, kept: ResponseCache[_Asked, _Answer], caller: Caller, target: Target, asked: _Asked, stamp: str
    ) -> _Answer:
        """The answer to equal questions that are asked at the same time, or one of the caller's own.

        An answer is the caller's own where the shared one is private to another caller, or was refused by the limit on
        searches from another caller's network.
        """
        is_asker = False

        async def ask() -> _Answer:
            nonlocal is_asker
            is_asker = True
            return await self._ask(caller, target, asked)

        try:
            answer = await kept.get_or_fetch(asked, stamp, ask)
        except UpstreamProblem as problem:
            if is_asker or problem.status != Overloaded.status:
                raise
            return await ask()
        return await ask() if answer.is_private and not is_asker else answer

    async def _ask(self, caller: Caller, target: Target, asked: _Asked) -> _Answer:
        method, headers = target.operation.method, {"Version": asked.contract, "ContinuationToken": asked.token}
        async with self._catalog_service.open(
            caller,
            method,
            target.segments,
            operation=target.operation.word,
            query=asked.query,
            timeout=target.operation.timeout,
            headers={name: value for name, value in headers.items() if value},
            data=asked.body or None,
        ) as response:
            if response.status >= 400:
                raise await problem_of(response)
            large = response.status == 200 and (response.content_length is None or response.content_length > SMALL)
            if large and method == "GET":  # It is asked for again, and passes through; a body is not sent twice.
                return _Answer(200, None, lasting=True)
            # Without a revision it is being changed, and may be another before anybody is told so. With other packages
            # hidden than it was asked for with, it is the answer to another question.
            same = response.headers.get(HIDDEN, "") == asked.hidden
            lasting = same and not large and REVISION_HEADER in response.headers
            beside = len(asked.body) + 4 * sum(map(len, (*asked.segments, asked.query, asked.token)))
            return _Answer(response.status, await response.read(), lasting, not same, beside)
