"""What a package has, as catalog_service answered it: remembered for a moment where nothing changes it.

That is the list of a package's versions, and its manifest, of which there is one for each contract of winget's.
"""

from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from common.caller import HIDDEN, Caller, Kind
from common.client import SMALL, ServiceClient, problem_of
from common.middleware import REVISION_HEADER, Answer
from gateway.addresses import Target
from gateway.clients import ClientDirectory
from gateway.remembered import Remembered
from gateway.winget import CONTRACTS

REMEMBERED = 1.0  # seconds; an answer has addresses in it that are good for a while only
MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes that an answer takes beside its own
QUERY_LIMIT = 256  # characters of a query by which an answer is remembered


class _Asked(NamedTuple):
    """All that an answer depends on. `hidden` stands for the packages that are hidden from the caller."""

    tenant_id: str
    segments: tuple[str, ...]
    base_url: str
    query: str = ""
    contract: str = ""
    hidden: str = ""


@dataclass(frozen=True)
class _Answer:
    """What catalog_service answered: no body where it is too long to be kept, `lasting` where nothing changes it."""

    status: int
    body: bytes | None
    lasting: bool

    @property
    def size(self) -> int:
        return len(self.body or b"") + OVERHEAD if self.lasting else MEMORY + 1  # for which there is no room


class Listings:
    """Asks catalog_service what a package has."""

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._answers: Remembered[_Asked, _Answer] = Remembered(
            seconds=REMEMBERED, most=MEMORY, size=lambda answer: answer.size
        )

    async def find(
        self, request: web.Request, caller: Caller, target: Target, stamp: str | None
    ) -> web.Response | None:
        """The answer; None where it has to be asked for by whoever wants it.

        Raises:
            Answered: catalog_service answered with a problem.
            Unavailable: a service did not answer.
        """
        if stamp is None or request.method != "GET" or request.body_exists:
            return None
        asked = _Asked(caller.tenant_id, target.segments, caller.base_url, request.rel_url.raw_query_string)
        if target.operation.of_winget:
            contract = request.headers.get("Version", "")
            if contract not in CONTRACTS or len(asked.query) > QUERY_LIMIT:
                return None
            hidden = await self._clients.hidden_from(caller, stamp) if caller.kind is Kind.CLIENT else ""
            asked = asked._replace(contract=contract, hidden=hidden)
        elif asked.query:
            return None
        answer = await self._answers.of(asked, stamp, lambda: self._ask(caller, target, asked))
        if answer.body is None:
            return None
        if answer.status == 204:
            return Answer(status=204)
        return Answer(body=answer.body, content_type="application/json")

    async def _ask(self, caller: Caller, target: Target, asked: _Asked) -> _Answer:
        async with self._catalog_service.open(
            caller,
            "GET",
            target.segments,
            operation=target.operation.word,
            query=asked.query,
            patience=target.operation.patience,
            headers={"Version": asked.contract} if asked.contract else None,
        ) as response:
            if response.status >= 400:
                raise await problem_of(response)
            if response.status == 200 and (response.content_length is None or response.content_length > SMALL):
                return _Answer(200, None, lasting=True)
            # Without a revision it is being changed, and may be another before anybody is told so. With other packages
            # hidden than it was asked for with, it is the answer to another question.
            same = response.headers.get(HIDDEN, "") == asked.hidden
            lasting = same and REVISION_HEADER in response.headers
            return _Answer(response.status, await response.read(), lasting)
