"""The versions of packages as catalog_service answered them, remembered for a moment where nothing changes them."""

from dataclasses import dataclass

from aiohttp import web

from common.caller import Caller
from common.client import SMALL, ServiceClient, problem_of
from common.middleware import REVISION_HEADER
from gateway.addresses import Target
from gateway.remembered import Remembered

REMEMBERED = 1.0  # seconds; an answer has addresses in it that are good for a while only
MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes that an answer takes beside its own


@dataclass(frozen=True)
class _Answer:
    """What catalog_service answered: no body where it is too long to be kept, `lasting` where nothing changes it."""

    body: bytes | None
    lasting: bool

    @property
    def size(self) -> int:
        return len(self.body or b"") + OVERHEAD if self.lasting else MEMORY + 1  # for which there is no room


class Listings:
    """Asks catalog_service which versions a package has."""

    def __init__(self, catalog_service: ServiceClient) -> None:
        self._catalog_service = catalog_service
        self._answers: Remembered[tuple[str, str, str], _Answer] = Remembered(
            seconds=REMEMBERED, most=MEMORY, size=lambda answer: answer.size
        )

    async def find(self, request: web.Request, caller: Caller, target: Target, stamp: str | None) -> bytes | None:
        """The answer in JSON; None where it has to be asked for by whoever wants it.

        Raises:
            Answered: catalog_service answered with a problem.
            Unavailable: it did not answer.
        """
        if stamp is None or request.method != "GET" or request.body_exists or request.rel_url.raw_query_string:
            return None
        key = caller.tenant_id, target.segments[1], caller.base_url
        return (await self._answers.of(key, stamp, lambda: self._ask(caller, target))).body

    async def _ask(self, caller: Caller, target: Target) -> _Answer:
        async with self._catalog_service.open(caller, "GET", target.segments) as response:
            if response.status >= 400:
                raise await problem_of(response)
            if response.content_length is None or response.content_length > SMALL:
                return _Answer(None, lasting=True)
            # Without a revision it is being changed, and may be another before anybody is told so.
            return _Answer(await response.read(), lasting=REVISION_HEADER in response.headers)
