"""One service asking another: signed for the caller, bounded in time, its problems passed on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from common.auth.callers import INTERNAL_TOKEN, REQUEST_ID, Caller, Signer
from common.auth.signing import Keys
from common.concurrency.limits import ConcurrencyLimit, loop_timeout
from common.errors import Unavailable
from common.service_client.connections import base_url, connections
from common.service_client.problems import problem_of
from common.service_client.transport import HEADER_LIMIT, SMALL, HttpTransport, Response
from common.telemetry import request_id
from common.telemetry.tracing import traces

__all__ = [
    "CONNECTIONS",
    "HEADER_LIMIT",
    "SMALL",
    "Response",
    "ServiceClient",
    "open_service",
    "problem_of",
]

ANSWER_TIMEOUT = 3.0  # seconds for an answer to begin
BLOCK_TIMEOUT = 10.0  # seconds without a byte of an answer that has begun
SLOT_TIMEOUT = 3.0  # seconds that a question waits for its turn
STREAM_TIMEOUT = 30.0  # seconds that a long transfer does
CONNECTIONS = 64  # for questions; without a bound a burst of them is lost, and with more each of them takes longer
SLOW_REQUESTS = 256  # for those that may be long in being answered
STREAMS = 1024  # for bodies and answers that take their time
STREAMS_OF_ONE_PLACE = STREAMS // 8  # of one network, see `place_of`: eight slow networks are needed to take all
JSON = (("Content-Type", "application/json"),)


class ServiceClient:
    """Calls one other service."""

    def __init__(
        self,
        questions: HttpTransport,
        long_questions: HttpTransport,
        streams: ClientSession,
        base: str,
        *,
        service: str,
        keys: Keys,
    ) -> None:
        """Each has connections of its own, so that what takes its time never keeps a short question waiting.

        Nor do streams, whose callers decide how long they take, keep long questions waiting.
        """
        self._questions = questions
        self._long_questions = long_questions
        self._streams = streams
        self._turns = ConcurrencyLimit(CONNECTIONS)
        self._long_turns = ConcurrencyLimit(SLOW_REQUESTS)
        self._stream_turns = ConcurrencyLimit(STREAMS)
        self._turns_of_places: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()
        self._base = base
        self._service = service
        self._signer = Signer(keys, service=service)

    async def json(
        self,
        caller: Caller,
        operation: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float = ANSWER_TIMEOUT,
    ) -> Any:
        """The JSON answer to an internal operation, asked with a JSON body; it may take `timeout` seconds.

        Raises:
            Answered: the service answered with a problem.
            Unavailable: it did not answer.
            Overloaded: too much is asked of it at once.
        """
        data = orjson.dumps(body or {})
        headers = dict(JSON)
        async with self.open(caller, "POST", [operation], headers=headers, data=data, timeout=timeout) as response:
            if response.status >= 400:
                raise await problem_of(response)
            return orjson.loads(await response.read())

    async def readiness(self, *, timeout: float) -> dict[str, Any]:
        """What one of the service's processes says of itself: `status`, and what is `missing`.

        Raises:
            Unavailable: it does not answer within so many seconds.
        """
        try:
            async with self._question("GET", "/readyz", CIMultiDict(), None, timeout) as response:
                return dict(orjson.loads(await response.read()))
        except (ClientError, HttpProcessingError, TimeoutError, ValueError, TypeError) as error:
            raise self._silent from error

    @asynccontextmanager
    async def open(
        self,
        caller: Caller,
        method: str,
        segments: Sequence[str],
        *,
        operation: str = "",
        query: str = "",
        headers: Mapping[str, str] | None = None,
        data: AsyncIterator[bytes] | bytes | None = None,
        timeout: float = ANSWER_TIMEOUT,
        streamed: bool = False,
    ) -> AsyncIterator[Response]:
        """The answer to an operation, to be read within the block.

        `segments` are the decoded parts of the path after the tenant; the first is the `operation`, unless that is
        named. `query` is as it stands in an address. `timeout` is how many seconds the service may take until its
        answer begins, once it has the body, or until a small one is there as a whole; `streamed` says that the body or
        the answer may take its time.

        Raises:
            Unavailable: the service did not answer, or not to the end.
            Overloaded: too much is asked of it at once.
        """
        path = "/".join(["", *[quote(segment, safe="") for segment in (caller.tenant_id, *segments)]])
        target = f"{path}?{query}" if query else path
        all_headers = CIMultiDict(headers or {})
        all_headers[INTERNAL_TOKEN] = self._signer.sign(caller, operation or segments[0])
        all_headers[REQUEST_ID] = request_id()
        opened: AbstractAsyncContextManager[Response]
        with traces.call_span(self._service, method, segments[0], all_headers) as span:
            if isinstance(data, bytes | None) and not streamed:
                opened = self._question(method, target, all_headers, data, timeout)
            else:
                opened = self._stream(caller, method, target, all_headers, data, timeout)
            try:
                async with opened as response:
                    span.set_status(response.status)
                    yield response
            except (ClientError, HttpProcessingError, TimeoutError) as error:
                raise self._silent from error

    @property
    def _silent(self) -> Unavailable:
        return Unavailable(f"The {self._service.replace('_', ' ')} does not answer; try again soon.")

    @asynccontextmanager
    async def _question(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        short = timeout <= ANSWER_TIMEOUT
        turns, questions = (self._turns, self._questions) if short else (self._long_turns, self._long_questions)
        pause = max(timeout, BLOCK_TIMEOUT)
        async with turns.acquire(SLOT_TIMEOUT):
            reply = await questions.request(method, target, headers, body, timeout=timeout, pause=pause)
            try:
                yield reply
            finally:
                reply.close()

    @asynccontextmanager
    async def _stream(
        self,
        caller: Caller,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        data: AsyncIterator[bytes] | bytes | None,
        timeout: float,
    ) -> AsyncIterator[Response]:
        # How long a body takes that is still being sent is not the service's doing.
        sending = isinstance(data, AsyncIterator)
        limit: AbstractAsyncContextManager[None] = nullcontext() if sending else loop_timeout(timeout)
        # Kept for as long as one of the place's streams is there, or waits.
        place = self._turns_of_places.setdefault(caller.network, ConcurrencyLimit(STREAMS_OF_ONE_PLACE))
        async with place.acquire(STREAM_TIMEOUT), self._stream_turns.acquire(STREAM_TIMEOUT):
            async with limit:
                response = await self._streams.request(
                    method,
                    URL(f"{self._base}{target}", encoded=True),
                    headers=headers,
                    data=data,
                    timeout=ClientTimeout(sock_read=max(timeout, BLOCK_TIMEOUT)),
                    allow_redirects=False,
                )
            async with response:
                yield response


@asynccontextmanager
async def open_service(address: str, *, service: str, keys: Keys) -> AsyncIterator[ServiceClient]:
    """A client of the service at `http://host:port` or `unix:/path/of/the.sock`, which has these keys."""
    base = base_url(address)
    async with (
        connections(address, CONNECTIONS) as short,
        connections(address, SLOW_REQUESTS) as long,
        ClientSession(
            connector=connections(address, STREAMS),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            max_field_size=HEADER_LIMIT,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as streams,
    ):
        yield ServiceClient(
            HttpTransport(short, base), HttpTransport(long, base), streams, base, service=service, keys=keys
        )
