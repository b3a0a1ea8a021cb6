"""Calls another service: signs the request for the caller, limits its time, and raises the service's problems."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson
from aiohttp import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, Signer
from common.auth.signing import Keys
from common.concurrency.limits import ConcurrencyLimit
from common.errors import Unavailable
from common.service_client.body_transport import NotConnected, RequestBody
from common.service_client.connections import base_url, connector
from common.service_client.problems import json_of, raise_problem
from common.service_client.replicas import Replicas
from common.service_client.transport import HEADER_LIMIT, SMALL, HttpReply, HttpTransport, Response
from common.telemetry import request_id
from common.telemetry.tracing import traces

__all__ = ["HEADER_LIMIT", "SMALL", "Response", "ServiceClient", "json_of", "open_service", "raise_problem"]

ANSWER_TIMEOUT = 3.0  # seconds until a response begins
BLOCK_TIMEOUT = 10.0  # seconds between two blocks of a response
SLOT_TIMEOUT = 3.0  # seconds that a request waits for a connection
STREAM_TIMEOUT = 30.0  # seconds that a stream waits for a connection
CONNECTIONS = 64  # for short requests; more would make each of them slower
SLOW_REQUESTS = 256  # requests with a longer timeout
STREAMS = 1024  # streamed bodies
STREAMS_OF_NETWORK = STREAMS // 8  # of one caller's network: eight slow networks are needed to take all
Data = RequestBody | bytes | None  # of a request
JSON = {"Content-Type": "application/json"}


class ServiceClient:
    """Calls one other service. Slow requests and streams have their own connections, and never delay short ones."""

    def __init__(
        self,
        short: HttpTransport,
        slow: HttpTransport,
        streams: HttpTransport,
        replicas: Replicas,
        *,
        service: str,
        keys: Keys,
    ) -> None:
        self._short = ConcurrencyLimit(CONNECTIONS), short
        self._slow = ConcurrencyLimit(SLOW_REQUESTS), slow
        self._streams = streams
        self._replicas = replicas
        self._stream_limit = ConcurrencyLimit(STREAMS)
        self._network_limits: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()
        self._service = service
        self._signer = Signer(keys, service=service)

    async def json(
        self, caller: Caller, operation: str, body: Mapping[str, Any] | None = None, *, timeout: float = ANSWER_TIMEOUT
    ) -> Any:
        """Call an internal operation with a JSON body and return its JSON response; `timeout` is in seconds.

        Raises UpstreamProblem, Unavailable without an answer, or Overloaded if too many requests wait.
        """
        data = orjson.dumps(body or {})
        async with self.open(caller, "POST", [operation], headers=JSON, data=data, timeout=timeout) as response:
            return await json_of(response)

    async def readiness(self, *, timeout: float) -> dict[str, Any]:
        """The `status` and the `missing` dependencies of one process of the service. Raises Unavailable."""
        try:
            async with self._request("GET", "/readyz", CIMultiDict(), None, timeout) as response:
                return dict(orjson.loads(await response.read()))
        except (ClientError, HttpProcessingError, TimeoutError, ValueError, TypeError) as error:
            raise self._unavailable() from error

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
        data: Data = None,
        timeout: float = ANSWER_TIMEOUT,
        streamed: bool = False,
        replica_key: str = "",
    ) -> AsyncIterator[Response]:
        """Call an operation and yield the response, which must be read within the block.

        `segments` are the decoded parts of the path after the tenant; the first is the `operation` by default. `query`
        is encoded. `timeout` is the seconds from the sent body until the response begins, or until a small one is
        complete. `streamed` is for bodies that take their time. A tenant's bodies with the same `replica_key` go to the
        same replica, while it is there.

        Raises Unavailable without a complete answer, Overloaded if too many requests wait for the service.
        """
        path = "/".join(["", *[quote(segment, safe="") for segment in (caller.tenant_id, *segments)]])
        target = f"{path}?{query}" if query else path
        all_headers = CIMultiDict(headers or {})
        all_headers[INTERNAL_TOKEN] = self._signer.sign(caller, operation or segments[0])
        all_headers[REQUEST_ID] = request_id()
        opened: AbstractAsyncContextManager[Response]
        with traces.call_span(self._service, method, segments[0], all_headers) as span:
            if not isinstance(data, bytes | None):
                key = f"{caller.tenant_id}/{replica_key}" if replica_key else request_id()
                opened = self._send_body(caller, key, method, target, all_headers, data, timeout)
            elif streamed:
                opened = self._stream(caller, method, target, all_headers, data, timeout)
            else:
                opened = self._request(method, target, all_headers, data, timeout)
            try:
                async with opened as response:
                    span.set_status(response.status)
                    yield response
            except (ClientError, HttpProcessingError, TimeoutError) as error:
                raise self._unavailable() from error

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"The {self._service.replace('_', ' ')} does not answer; try again soon.")

    @asynccontextmanager
    async def _request(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        limit, transport = self._short if timeout <= ANSWER_TIMEOUT else self._slow
        pause = max(timeout, BLOCK_TIMEOUT)
        async with limit.acquire(SLOT_TIMEOUT):
            with closing(await transport.request(method, target, headers, body, timeout=timeout, pause=pause)) as reply:
                yield reply

    @asynccontextmanager
    async def _send_body(
        self,
        caller: Caller,
        key: str,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: RequestBody,
        timeout: float,
    ) -> AsyncIterator[Response]:
        pause = max(timeout, BLOCK_TIMEOUT)
        async with self._stream_slot(caller):
            with closing(await self._send_to_replica(key, method, target, headers, body, pause)) as reply:
                yield reply

    async def _send_to_replica(
        self, key: str, method: str, target: str, headers: CIMultiDict[str], body: RequestBody, timeout: float
    ) -> HttpReply:
        """Send to the first replica that can be reached."""
        *others, last = await self._replicas.ordered(key)
        for replica in others:
            try:
                return await replica.send_body(method, target, headers, body, timeout=timeout)
            except NotConnected:
                self._replicas.avoid(replica)
            except TimeoutError:
                self._replicas.avoid(replica)
                raise
        return await last.send_body(method, target, headers, body, timeout=timeout)

    @asynccontextmanager
    async def _stream(
        self, caller: Caller, method: str, target: str, headers: CIMultiDict[str], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        pause = max(timeout, BLOCK_TIMEOUT)
        async with self._stream_slot(caller):
            reply = await self._streams.stream(method, target, headers, body, timeout=timeout, pause=pause)
            with closing(reply):
                yield reply

    @asynccontextmanager
    async def _stream_slot(self, caller: Caller) -> AsyncIterator[None]:
        # The dictionary keeps a limit only while a stream of its network exists or waits.
        network_limit = self._network_limits.setdefault(caller.network, ConcurrencyLimit(STREAMS_OF_NETWORK))
        async with network_limit.acquire(STREAM_TIMEOUT), self._stream_limit.acquire(STREAM_TIMEOUT):
            yield


@asynccontextmanager
async def open_service(address: str, *, service: str, keys: Keys) -> AsyncIterator[ServiceClient]:
    """A client of the service at `http://host:port` or `unix:/path/of/the.sock`; `keys` are the service's."""
    base = base_url(address)
    async with (
        connector(address, CONNECTIONS) as short,
        connector(address, SLOW_REQUESTS) as slow,
        connector(address, STREAMS) as streams,
    ):
        yield ServiceClient(
            HttpTransport(short, base),
            HttpTransport(slow, base),
            HttpTransport(streams, base),
            Replicas(streams, address),
            service=service,
            keys=keys,
        )
