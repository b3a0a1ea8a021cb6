"""One service asking another: signed for the caller, bounded in time, its problems passed on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson
from aiohttp import (
    BaseConnector,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    UnixConnector,
)
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from common.caller import INTERNAL_TOKEN, REQUEST_ID, Caller, Signer, UntrustedCaller
from common.errors import Answered, Unavailable
from common.signing import Keys
from common.telemetry import request_id
from common.turns import Turns, within

ANSWER_PATIENCE = 3.0  # seconds for an answer to begin
CONNECT_PATIENCE = 3.0  # seconds for a connection, whatever is to be asked on it
BLOCK_PATIENCE = 10.0  # seconds without a byte of an answer that has begun
TURN_PATIENCE = 3.0  # seconds that a question waits for its turn
STREAM_PATIENCE = 30.0  # seconds that a long transfer does
CONNECTIONS = 64  # for questions; without a bound a burst of them is lost, and with more each of them takes longer
LONG_QUESTIONS = 256  # for those that may be long in being answered
STREAMS = 1024  # for bodies and answers that take their time
STREAMS_OF_ONE_PLACE = STREAMS // 2  # Crowds behind one address are common; but all would leave nothing to others.
SMALL = 64 << 10  # bytes: an answer up to here is read whole
MEMBERS = ("received", "total")  # in bytes: where a refused chunk leaves its transfer, told beside the problem
IDLE = 1.0  # seconds after which a connection is not used again; a service that stops keeps it for longer
HEADER_LIMIT = 256 << 10  # bytes: what a write of a thousand values says for the audit log


class ServiceClient:
    """Calls one other service."""

    def __init__(self, session: ClientSession, streams: ClientSession, base: str, *, service: str, keys: Keys) -> None:
        """`streams` has the connections of what takes its time, so that it never keeps a short question waiting.

        Nor do streams, whose callers decide how long they take, keep long questions waiting.
        """
        self._session = session
        self._streams = streams
        self._turns = Turns(CONNECTIONS)
        self._long_turns = Turns(LONG_QUESTIONS)
        self._stream_turns = Turns(STREAMS)
        self._turns_of_places: WeakValueDictionary[str, Turns] = WeakValueDictionary()
        self._base = base
        self._service = service
        self._signer = Signer(keys, service=service)

    async def ask(
        self,
        caller: Caller,
        operation: str,
        body: Mapping[str, Any] | None = None,
        *,
        patience: float = ANSWER_PATIENCE,
    ) -> Any:
        """The JSON answer to an internal operation, asked with a JSON body; it may take `patience` seconds.

        Raises:
            Answered: the service answered with a problem.
            Unavailable: it did not answer.
            Overloaded: too much is asked of it at once.
        """
        headers = {"Content-Type": "application/json"}
        data = orjson.dumps(body or {})
        async with self.open(caller, "POST", [operation], headers=headers, data=data, patience=patience) as response:
            if response.status >= 400:
                raise await problem_of(response)
            return orjson.loads(await response.read())

    @asynccontextmanager
    async def open(
        self,
        caller: Caller,
        method: str,
        segments: Sequence[str],
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        patience: float = ANSWER_PATIENCE,
        streamed: bool = False,
    ) -> AsyncIterator[ClientResponse]:
        """The answer to an operation, to be read within the block.

        `segments` are the decoded parts of the path after the tenant, the operation first; `query` is as it stands in
        an address. `patience` is how many seconds the service may take until its answer begins, once it has the body,
        or until a small one is there as a whole; `streamed` says that the body or the answer may take its time.

        Raises:
            Unavailable: the service did not answer, or not to the end.
            Overloaded: too much is asked of it at once.
        """
        path = "/".join(quote(segment, safe="") for segment in (caller.tenant_id, *segments))
        url = URL(f"{self._base}/{path}{'?' + query if query else ''}", encoded=True)
        all_headers = CIMultiDict(headers or {})
        all_headers[INTERNAL_TOKEN] = self._signer.sign(caller, segments[0])
        all_headers[REQUEST_ID] = request_id()
        timeout = ClientTimeout(sock_read=max(patience, BLOCK_PATIENCE))
        # How long a body takes that is still being sent is not the service's doing.
        sending = isinstance(data, AsyncIterator)
        limit: AbstractAsyncContextManager[None] = nullcontext() if sending else within(patience)
        try:
            async with self._turn(caller, streamed=streamed, patience=patience) as session:
                async with limit:
                    response = await session.request(
                        method,
                        url,
                        headers=all_headers,
                        data=data,
                        timeout=timeout,
                        allow_redirects=False,
                    )
                    if not streamed and response.content_length is not None and response.content_length <= SMALL:
                        await response.read()
                async with response:
                    yield response
        except (ClientError, TimeoutError) as error:
            raise Unavailable(f"The {self._service.replace('_', ' ')} does not answer; try again soon.") from error

    @asynccontextmanager
    async def _turn(self, caller: Caller, *, streamed: bool, patience: float) -> AsyncIterator[ClientSession]:
        """A connection for whoever has one's turn."""
        if streamed:
            # Kept for as long as one of the place's streams is there, or waits.
            place = self._turns_of_places.setdefault(caller.place, Turns(STREAMS_OF_ONE_PLACE))
            async with place.one(STREAM_PATIENCE), self._stream_turns.one(STREAM_PATIENCE):
                yield self._streams
        elif patience > ANSWER_PATIENCE:
            async with self._long_turns.one(TURN_PATIENCE):
                yield self._streams
        else:
            async with self._turns.one(TURN_PATIENCE):
                yield self._session


async def problem_of(response: ClientResponse) -> Answered | Unavailable:
    """The problem that a service answered with."""
    try:
        problem = orjson.loads(await response.read())
        code, detail = str(problem["code"]), str(problem["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ClientError):
        return Unavailable(f"A service answered with status {response.status} and no reason.")
    if code == UntrustedCaller.code:
        # The other service refuses *us*: the two have different keys, which is not the caller's doing.
        return Unavailable("The services do not trust each other; their keys differ.")
    retry_after = response.headers.get("Retry-After", "")
    return Answered(
        detail,
        status=response.status,
        code=code,
        retry_after=int(retry_after) if retry_after.isdigit() else None,
        content_range=response.headers.get("Content-Range", ""),
        members={name: value for name in MEMBERS if type(value := problem.get(name)) is int and value >= 0},
    )


@asynccontextmanager
async def open_service(address: str, *, service: str, keys: Keys) -> AsyncIterator[ServiceClient]:
    """A client of the service at `http://host:port` or `unix:/path/of/the.sock`, which has these keys."""
    async with _session(address, CONNECTIONS) as session, _session(address, LONG_QUESTIONS + STREAMS) as streams:
        base = "http://localhost" if address.startswith("unix:") else address.rstrip("/")
        yield ServiceClient(session, streams, base, service=service, keys=keys)


def _session(address: str, connections: int) -> ClientSession:
    connector: TCPConnector | UnixConnector
    if address.startswith("unix:"):
        connector = _UnixConnector(address.removeprefix("unix:"), limit=connections, keepalive_timeout=IDLE)
    else:
        connector = _TCPConnector(limit=connections, keepalive_timeout=IDLE)
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        max_field_size=HEADER_LIMIT,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


class _Hasty(BaseConnector):
    """Gives up a connection that is not there soon, in ticks of our own loop; by the clock it may be late itself."""

    async def _create_connection(self, *given: Any, **options: Any) -> ResponseHandler:
        async with within(CONNECT_PATIENCE):
            return await super()._create_connection(*given, **options)


class _TCPConnector(_Hasty, TCPConnector):
    pass


class _UnixConnector(_Hasty, UnixConnector):
    pass
