"""Calls another service: signs the request for the caller, limits its time, and raises the service's problems."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from hashlib import blake2b
from ipaddress import ip_address
from socket import SOCK_STREAM
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson
from aiohttp import BaseConnector, ClientError, TCPConnector, UnixConnector
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, Signer, UntrustedCaller
from common.auth.signing import Keys
from common.concurrency.limits import ConcurrencyLimit
from common.errors import Unavailable, UpstreamProblem
from common.http.aiohttp_private import ConnectTimeoutMixin
from common.service_client.transport import (
    HEADER_LIMIT,
    SMALL,
    HttpReply,
    HttpTransport,
    NotConnected,
    RequestBody,
    Response,
)
from common.telemetry import log, request_id, traces

__all__ = ["HEADER_LIMIT", "SMALL", "Response", "ServiceClient", "json_of", "open_service", "raise_problem"]

ANSWER_TIMEOUT = 3.0  # seconds until a response begins
BLOCK_TIMEOUT = 10.0  # seconds between two blocks of a response
SLOT_TIMEOUT = 3.0  # seconds that a request waits for a connection
STREAM_TIMEOUT = 30.0  # seconds that a stream waits for a connection
CONNECTIONS = 64  # for short requests; more would make each of them slower
SLOW_REQUESTS = 256  # requests with a longer timeout
STREAMS = 1024  # streamed bodies
# Of one caller's network: an office of 300 machines behind one address gets an installer at once, and three slow
# networks are needed to take all.
STREAMS_OF_NETWORK = STREAMS * 3 // 8
Data = RequestBody | bytes | None  # of a request
JSON = {"Content-Type": "application/json"}
KEEP_ALIVE = 1.0  # seconds that an idle connection is reused; a stopping service keeps it for longer
LOOKUP_INTERVAL = 2.0  # seconds
LOOKUP_TIMEOUT = 1.0  # seconds; after that, the known addresses are used
AVOIDED = 10.0  # seconds in which a replica that did not answer comes after all others
MEMBERS = ("received", "total")  # in bytes: the state of the upload whose chunk was refused
TEXT_MEMBERS = ("ring", "gate")  # that refused a version


class _TCPConnector(ConnectTimeoutMixin, TCPConnector):
    pass


class _UnixConnector(ConnectTimeoutMixin, UnixConnector):
    pass


def base_url(address: str) -> str:
    """The start of the URLs of a service at `http://host:port` or `unix:/path/of/the.sock`."""
    return "http://localhost" if address.startswith("unix:") else address.rstrip("/")


def connector(address: str, limit: int) -> BaseConnector:
    """At most `limit` connections to `http://host:port` or `unix:/path/of/the.sock`."""
    if address.startswith("unix:"):
        return _UnixConnector(address.removeprefix("unix:"), limit=limit, keepalive_timeout=KEEP_ALIVE)
    return _TCPConnector(limit=limit, keepalive_timeout=KEEP_ALIVE)


class Replicas:
    """One transport for each address of the service's name.

    A unix socket, an IP address or a name without addresses is one replica. So is https: a certificate has the name.
    """

    def __init__(self, connector: BaseConnector, address: str) -> None:
        self._connector = connector
        self._url = URL(base_url(address))
        self._has_name = address.startswith("http:") and not _is_ip(self._url.raw_host or "")
        self._transports = {"": HttpTransport(connector, str(self._url))}
        self._looked_up = -LOOKUP_INTERVAL
        self._avoided: dict[HttpTransport, float] = {}  # and until when

    async def ordered(self, key: str) -> list[HttpTransport]:
        """All replicas, the one for `key` first (rendezvous hashing): the loss of one moves only its own keys."""
        if self._has_name and time.monotonic() - self._looked_up >= LOOKUP_INTERVAL:
            self._looked_up = time.monotonic()  # Concurrent requests use the known addresses.
            await self._look_up()
        if len(self._transports) == 1:
            return [*self._transports.values()]
        addresses = sorted(self._transports, key=lambda address: _score(key, address))
        return sorted((self._transports[address] for address in addresses), key=self._is_avoided)

    def avoid(self, transport: HttpTransport) -> None:
        """Put a replica that did not answer after the others for a while."""
        self._avoided[transport] = time.monotonic() + AVOIDED

    def _is_avoided(self, transport: HttpTransport) -> bool:
        return self._avoided.get(transport, 0) > time.monotonic()

    async def _look_up(self) -> None:
        url = self._url
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                found = await asyncio.get_running_loop().getaddrinfo(url.raw_host, url.port, type=SOCK_STREAM)
            if not found:
                raise OSError("no address")
        except OSError as error:
            log.warning("replicas_not_found", host=url.raw_host, error=str(error))
            return
        addresses = {str(address[0]) for *_, address in found}
        known = self._transports
        self._transports = {address: known.get(address) or self._open(address) for address in sorted(addresses)}
        self._avoided = {each: until for each, until in self._avoided.items() if self._is_avoided(each)}

    def _open(self, address: str) -> HttpTransport:
        return HttpTransport(self._connector, str(self._url.with_host(address)), self._url.raw_authority)


def _score(key: str, address: str) -> bytes:
    return blake2b(f"{key} {address}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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
            async with self._slot(timeout) as transport:
                reply = await transport.request(
                    "GET", "/readyz", CIMultiDict(), None, timeout=timeout, pause=max(timeout, BLOCK_TIMEOUT)
                )
                with closing(reply):
                    return dict(orjson.loads(await reply.read()))
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
        pause, is_body = max(timeout, BLOCK_TIMEOUT), not isinstance(data, bytes | None)
        with traces.call_span(self._service, method, segments[0], all_headers) as span:
            slot = self._stream_slot(caller) if streamed or is_body else self._slot(timeout)
            try:
                async with slot as transport:
                    if isinstance(data, bytes | None):
                        reply = await transport.request(
                            method, target, all_headers, data, timeout=timeout, pause=pause, streamed=streamed
                        )
                    else:
                        key = f"{caller.tenant_id}/{replica_key}" if replica_key else request_id()
                        reply = await self._send_body(key, method, target, all_headers, data, pause)
                    with closing(reply):
                        span.set_status(reply.status)
                        yield reply
            except (ClientError, HttpProcessingError, TimeoutError) as error:
                raise self._unavailable() from error

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"The {self._service.replace('_', ' ')} does not answer; try again soon.")

    @asynccontextmanager
    async def _slot(self, timeout: float) -> AsyncIterator[HttpTransport]:
        limit, transport = self._short if timeout <= ANSWER_TIMEOUT else self._slow
        async with limit.acquire(SLOT_TIMEOUT):
            yield transport

    async def _send_body(
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
    async def _stream_slot(self, caller: Caller) -> AsyncIterator[HttpTransport]:
        # The dictionary keeps a limit only while a stream of its network exists or waits.
        network_limit = self._network_limits.setdefault(caller.network, ConcurrencyLimit(STREAMS_OF_NETWORK))
        async with network_limit.acquire(STREAM_TIMEOUT), self._stream_limit.acquire(STREAM_TIMEOUT):
            yield self._streams


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


async def raise_problem(response: Response) -> None:
    """Raise the problem of an error response; do nothing for any other."""
    if response.status >= 400:
        raise await _problem_of(response)


async def json_of(response: Response) -> Any:
    """The JSON body of a response. Raises its problem."""
    await raise_problem(response)
    return orjson.loads(await response.read())


async def _problem_of(response: Response) -> UpstreamProblem | Unavailable:
    try:
        problem = orjson.loads(await response.read())
        code, detail = str(problem["code"]), str(problem["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ClientError):
        return Unavailable(f"A service answered with status {response.status} and no reason.")
    if code == UntrustedCaller.code:
        # The service rejected our token, not the caller's: the two services have different keys.
        return Unavailable("The services do not trust each other; their keys differ.")
    retry_after, params = response.headers.get("Retry-After", ""), problem.get("params")
    return UpstreamProblem(
        detail,
        status=response.status,
        code=code,
        retry_after=int(retry_after) if retry_after.isdigit() else None,
        content_range=response.headers.get("Content-Range", ""),
        members=_members_of(problem),
        params={name: str(value) for name, value in params.items()} if isinstance(params, dict) else {},
    )


def _members_of(problem: Mapping[str, Any]) -> dict[str, int | str]:
    numbers = {name: value for name in MEMBERS if type(value := problem.get(name)) is int and value >= 0}
    return numbers | {name: value for name in TEXT_MEMBERS if isinstance(value := problem.get(name), str)}
