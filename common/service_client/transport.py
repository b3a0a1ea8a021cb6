"""A small HTTP client: one request on one connection, with its whole body at hand.

aiohttp opens and keeps the connections and parses the responses. Its `ClientSession` also has redirects, cookies,
proxies and compression; they cost several times as much as the request, and our services use none of them.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from aiohttp import (
    BaseConnector,
    ClientConnectionError,
    ClientConnectorError,
    ClientOSError,
    ClientRequest,
    ClientTimeout,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    StreamReader,
    hdrs,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage, StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from common.concurrency.limits import loop_timeout

HEADER_LIMIT = 1 << 20  # bytes: the audit header of a form with the longest old and new settings
SMALL = 64 << 10  # bytes: a response up to this size is read at once
READS = frozenset([hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS, hdrs.METH_TRACE])  # have no body
NO_LIMIT = ClientTimeout()


class Response(Protocol):
    """A response whose body may still be arriving."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> CIMultiDictProxy[str]: ...
    @property
    def content_length(self) -> int | None: ...
    @property
    def content(self) -> StreamReader: ...
    @property
    def connection(self) -> Connection | None: ...
    async def read(self) -> bytes: ...


class HttpReply:
    """A response of `HttpTransport`; its connection is free again once the body has arrived."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self.status = message.code
        self.headers = message.headers
        self.content = content
        self.connection = connection
        self._body: bytes | None = None
        content.on_eof(self._release)

    @property
    def content_length(self) -> int | None:
        length = self.headers.get(hdrs.CONTENT_LENGTH)
        return None if length is None else int(length)

    async def read(self) -> bytes:
        """The whole body; may be called repeatedly."""
        if self._body is None:
            content = self.content  # A small body mostly arrives with its head; `read` would take it in three steps.
            self._body = content.read_nowait() if content.is_eof() else await content.read()
        return self._body

    def close(self) -> None:
        """Close the connection if the body has not arrived completely."""
        self.connection.close()

    def _release(self) -> None:
        """Free the connection, or close it if the service answered before it read the whole request."""
        transport = self.connection.transport
        if transport is not None and transport.get_write_buffer_size():
            self.connection.close()
        else:
            self.connection.release()


class RequestBody(Protocol):
    """A body that arrives while it is sent."""

    async def send(self, writer: StreamWriter, *, stall_timeout: float) -> None: ...


class NotConnected(ClientConnectionError):
    """There was no connection; nothing of the body was taken."""


class HttpTransport:
    """Sends requests to one service, or to one of its replicas."""

    def __init__(self, connector: BaseConnector, base: str, host: str = "") -> None:
        self._connector = connector
        self._connection_key = ClientRequest(hdrs.METH_GET, URL(base))  # The connector reads the address from it.
        self.prefix = URL(base).raw_path.rstrip("/")
        self.host = host or self._connection_key.headers[hdrs.HOST]

    async def request(
        self,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: bytes | None,
        *,
        timeout: float,
        pause: float,
        streamed: bool = False,
    ) -> HttpReply:
        """Send a request and return the response; the caller must close it. It has its body if that is small, unless it
        is `streamed`.

        `target` is the encoded path with its query. `timeout` is the seconds until the response begins, or until a
        small one is complete; `pause` is the longest time between two blocks of a longer one.

        A read is retried once if the connection breaks before the response: the service may have closed an idle
        connection. A write is never retried: a repeated deletion would find nothing.

        Raises ClientError, HttpProcessingError, TimeoutError: there is no valid response.
        """
        message = _encode(method, f"{self.prefix}{target}", self.host, headers, body)
        async with loop_timeout(timeout):
            try:
                reply = await self._send(method, message, pause)
            except (ConnectionTimeoutError, ClientConnectorError):
                raise
            except (ClientOSError, ServerDisconnectedError):
                if method not in READS:
                    raise
                reply = await self._send(method, message, pause)
            if not streamed and reply.content_length is not None and reply.content_length <= SMALL:
                try:
                    await reply.read()
                except BaseException:
                    reply.close()
                    raise
            return reply

    async def _send(self, method: str, message: bytes, pause: float) -> HttpReply:
        connection, protocol = await self.connect(method, pause)
        try:
            cast("asyncio.Transport", connection.transport).write(message)
            head, content = await read_head(protocol)
        except BaseException:
            connection.close()
            raise
        return HttpReply(connection, head, content)

    async def send_body(
        self, method: str, target: str, headers: CIMultiDict[str], body: RequestBody, *, timeout: float
    ) -> HttpReply:
        """Send a request with a body as it arrives, and return the response; the caller must close it.

        `timeout` is the seconds from the end of the body until the response begins, and the longest time in which the
        service takes and sends nothing. A service may answer before the end of the body.

        Raises NotConnected: no byte of the body was taken. Others as `request` and `body` do.
        """
        try:
            connection, protocol = await self.connect(method, timeout)
        except (ClientConnectionError, TimeoutError) as error:
            raise NotConnected from error
        loop = asyncio.get_running_loop()
        headers[hdrs.HOST] = self.host
        writer = StreamWriter(protocol, loop)
        if hdrs.CONTENT_LENGTH not in headers:
            headers[hdrs.TRANSFER_ENCODING] = "chunked"
            writer.enable_chunking()
        answer = asyncio.create_task(read_head(protocol))
        try:
            await writer.write_headers(f"{method} {self.prefix}{target} HTTP/1.1", headers)
            if not await _finishes_before(answer, body.send(writer, stall_timeout=timeout)):
                protocol.force_close()  # The service would take the next request for the rest of this body.
            async with loop_timeout(timeout):
                head, content = await answer
        except BaseException:
            answer.cancel()
            connection.close()
            raise
        return HttpReply(connection, head, content)

    async def connect(self, method: str, pause: float) -> tuple[Connection, ResponseHandler]:
        """A connection that is ready for a request; `pause` is as in `request`. Raises ClientError or TimeoutError."""
        connection = await self._connector.connect(self._connection_key, [], NO_LIMIT)
        protocol = connection.protocol
        if protocol is None or not protocol.is_connected():
            connection.close()
            raise ServerDisconnectedError
        protocol.set_response_params(
            skip_payload=method == hdrs.METH_HEAD,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=pause,
            max_field_size=HEADER_LIMIT,
        )
        return connection, protocol


async def read_head(protocol: ResponseHandler) -> tuple[RawResponseMessage, StreamReader]:
    """The head of the response, after interim ones."""
    head, content = await protocol.read()
    while head.code < 200 and head.code != 101:
        head, content = await protocol.read()
    return head, content


def _encode(method: str, target: str, host: str, headers: CIMultiDict[str], body: bytes | None) -> bytes:
    """The bytes of a request. Raises ValueError for a line break in a header."""
    if body is not None or method not in READS:
        headers[hdrs.CONTENT_LENGTH] = str(len(body or b""))  # It replaces any other length.
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *[f"{name}: {value}" for name, value in headers.items()]]
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1 or "\0" in head:
        raise ValueError("A part of a head is more than one line.")
    return b"".join((head.encode(), b"\r\n\r\n", body or b""))


async def _finishes_before(answer: asyncio.Future[Any], sending: Coroutine[Any, Any, None]) -> bool:
    """Send until the answer begins. Returns whether all was sent; a service that has gone may have answered, too."""
    loop, is_sending = asyncio.get_running_loop(), True

    def stop(_: object) -> None:
        if is_sending:
            limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            answer.add_done_callback(stop)
            try:
                await sending
            finally:
                is_sending = False
                answer.remove_done_callback(stop)
    except ConnectionResetError:
        return False
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True
