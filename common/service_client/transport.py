"""Questions: requests whose bodies are at hand, each on a connection that it has to itself until it is answered.

aiohttp opens and keeps the connections, and reads the answers, as it does for a `ClientSession`. What stands between
the two there (redirects, cookies, proxies, compression) costs several times what the question does, and no service of
ours has a use for it.
"""

from typing import Protocol

from aiohttp import (
    BaseConnector,
    ClientConnectorError,
    ClientOSError,
    ClientRequest,
    ClientTimeout,
    ConnectionTimeoutError,
    ServerDisconnectedError,
    StreamReader,
    hdrs,
)
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from common.concurrency.limits import loop_timeout

HEADER_LIMIT = 256 << 10  # bytes: what a write of a thousand values says for the audit log
SMALL = 64 << 10  # bytes: an answer up to here is read whole
READS = frozenset([hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS, hdrs.METH_TRACE])  # have no body
NO_LIMIT = ClientTimeout()


class Response(Protocol):
    """What a service answers: a status and headers, and a body that may still be coming."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> CIMultiDictProxy[str]: ...
    @property
    def content_length(self) -> int | None: ...
    @property
    def content(self) -> StreamReader: ...
    async def read(self) -> bytes: ...


class HttpReply:
    """The answer to a question; its connection is free for the next one as soon as it is there to its end."""

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self.status = message.code
        self.headers = message.headers
        self.content = content
        self._connection = connection
        self._body: bytes | None = None
        content.on_eof(self._release)

    @property
    def content_length(self) -> int | None:
        length = self.headers.get(hdrs.CONTENT_LENGTH)
        return None if length is None else int(length)

    async def read(self) -> bytes:
        """All of the body, as often as it is asked for."""
        if self._body is None:
            self._body = await self.content.read()
        return self._body

    def close(self) -> None:
        """End the connection where the answer is not there to its end."""
        self._connection.close()

    def _release(self) -> None:
        """Let the next question have the connection, unless the service answered before it had all of this one."""
        transport = self._connection.transport
        if transport is not None and transport.get_write_buffer_size():
            self._connection.close()
        else:
            self._connection.release()


class HttpTransport:
    """Asks one service."""

    def __init__(self, connector: BaseConnector, base: str) -> None:
        """`base` is what the addresses of its operations begin with."""
        self._connector = connector
        self._place = ClientRequest(hdrs.METH_GET, URL(base))  # by which the connector knows the service
        self._prefix = URL(base).raw_path.rstrip("/")
        self._host = self._place.headers[hdrs.HOST]

    async def request(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | None, *, timeout: float, pause: float
    ) -> HttpReply:
        """The answer, read whole where it is small, to be closed by whoever asks.

        `target` is the path with its query, as it stands in a request. `timeout` is how many seconds there are until
        the answer begins, or a small one is there as a whole; `pause` is how many may pass between two blocks of a
        longer one. A read is asked again where the connection breaks before there is an answer: the service may have
        closed it when we began to write. No write is: a deletion that was done would be answered as one of nothing.

        Raises:
            ClientError, HttpProcessingError, TimeoutError: there is no answer, or none that is HTTP.
        """
        message = _encoded(method, f"{self._prefix}{target}", self._host, headers, body)
        async with loop_timeout(timeout):
            try:
                reply = await self._answered(method, message, pause)
            except (ConnectionTimeoutError, ClientConnectorError):
                raise
            except (ClientOSError, ServerDisconnectedError):
                if method not in READS:
                    raise
                reply = await self._answered(method, message, pause)
            if reply.content_length is not None and reply.content_length <= SMALL:
                try:
                    await reply.read()
                except BaseException:
                    reply.close()
                    raise
            return reply

    async def _answered(self, method: str, message: bytes, pause: float) -> HttpReply:
        """An answer that has begun."""
        connection = await self._connector.connect(self._place, [], NO_LIMIT)
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                raise ServerDisconnectedError
            protocol.set_response_params(
                skip_payload=method == hdrs.METH_HEAD,
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=pause,
                max_field_size=HEADER_LIMIT,
            )
            transport.write(message)
            head, content = await protocol.read()
            while head.code < 200 and head.code != 101:
                head, content = await protocol.read()
        except BaseException:
            connection.close()
            raise
        return HttpReply(connection, head, content)


def _encoded(method: str, target: str, host: str, headers: CIMultiDict[str], body: bytes | None) -> bytes:
    """A request as it goes over the wire. Raises ValueError where a part of its head would end a line."""
    if body is not None or method not in READS:
        headers[hdrs.CONTENT_LENGTH] = str(len(body or b""))  # There is one length, and it is the body's.
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *[f"{name}: {value}" for name, value in headers.items()]]
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1 or "\0" in head:
        raise ValueError("A part of a head is more than one line.")
    return b"".join((head.encode(), b"\r\n\r\n", body or b""))
