"""Every private name of aiohttp that this product uses; no other module uses one.

`tests/unit/repository/test_dependencies.py` lists the names, so that an upgrade that removes one fails clearly.
"""

from collections.abc import Callable
from typing import Any

from aiohttp import BaseConnector, web
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import MAX_MSG_QUEUE_SIZE, _ErrInfo

from common.concurrency.limits import loop_timeout

_ZEROS = bytes(256 << 10)  # fewer than those for which aiohttp would pause the transport, and resume it


class ServerConnection(web.RequestHandler):
    """A connection of a server, with its state."""

    __slots__ = ()

    @property
    def request_count(self) -> int:
        """The number of requests whose heads were received."""
        return self._request_count

    @property
    def is_waiting_for_request(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    @property
    def is_reading_paused(self) -> bool:
        return self._reading_paused

    @property
    def output_size(self) -> int:
        """The bytes written for the current request."""
        return self._current_request.writer.output_size if self._current_request else 0

    def pause_long_body(self, threshold: int) -> None:
        """Leave the rest of the newest request's body in the socket until the body is read, if that is so many bytes.

        Something of it must have arrived: its reader continues the reading, but would not do so while it waits.
        """
        if self._messages:
            message, content = self._messages[-1]
            if content.is_eof() or not content.total_bytes or isinstance(message, _ErrInfo):
                return
            if int(message.headers.get("Content-Length", 0)) - content.total_bytes >= threshold:
                self.pause_reading()

    def skip_body(self, content: StreamReader, received: int, left: int) -> None:
        """Continue with a body of which so many bytes were received without the parser, and then so many are left."""
        if self.transport is None or content.exception() is not None:
            return
        if left:
            self.count(content, received)
        else:
            self._parser = self._new_parser()  # The next byte begins a request.
            content.feed_eof()
        if not self._reading_paused:
            self.transport.resume_reading()

    def count(self, content: StreamReader, received: int) -> None:
        """Let the parser count bytes of a body that it has not seen: for each it gets a zero, which is dropped."""
        while received and content.exception() is None:
            zeros = _ZEROS[:received]
            self.data_received(zeros)
            content.read_nowait()
            received -= len(zeros)

    def _new_parser(self) -> HttpRequestParser:
        """A parser with the options of `RequestHandler`."""
        return HttpRequestParser(
            self,
            self._loop,
            self._read_bufsize,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=self._manager._kwargs.get("auto_decompress", True) if self._manager else True,
            max_msg_queue_size=MAX_MSG_QUEUE_SIZE,
        )

    def reject_requests(self, is_rejected: Callable[[RawRequestMessage], bool], reason: str) -> None:
        """Answer the waiting requests that are rejected with 400, as if they were malformed."""
        for index, (message, _) in enumerate(self._messages):
            if not isinstance(message, _ErrInfo) and is_rejected(message):
                error = BadHttpMessage(reason)
                self._messages[index] = (_ErrInfo(400, error, error.message), EMPTY_PAYLOAD)


class ServerRunner(web.AppRunner):
    """Runs an application on connections of another class."""

    connection_class = ServerConnection

    def request_handler(self, default: Callable[..., Any]) -> Callable[..., Any]:
        """The handler of all requests; `default` uses the application's router."""
        return default

    async def _make_server(self) -> web.Server:
        connection_class, server = self.connection_class, await super()._make_server()

        class Server(web.Server):
            def __call__(self) -> web.RequestHandler:
                return connection_class(self, loop=self._loop, **self._kwargs)

        handler = self.request_handler(server.request_handler)
        return Server(handler, request_factory=server.request_factory, **server._kwargs)


def set_match_info(request: web.Request, match_info: web.UrlMappingMatchInfo) -> None:
    """Set the route of a request without the router."""
    request._match_info = match_info


async def send_response(request: web.BaseRequest, response: web.Response, body: bytes) -> None:
    """Send a response with its complete headers and body, and keep the connection open."""
    response._keep_alive = True
    await request._prepare_hook(response)
    await request.writer.write_headers(f"HTTP/1.1 {response.status} {response.reason}", response.headers)
    await request.writer.write_eof(body)
    response._eof_sent = True


class ConnectTimeoutMixin(BaseConnector):
    """A connector with a time limit for connecting, in ticks of our own event loop: the loop may be late itself."""

    connect_timeout = 3.0  # seconds

    async def _create_connection(self, *arguments: Any, **options: Any) -> ResponseHandler:
        async with loop_timeout(self.connect_timeout):
            return await super()._create_connection(*arguments, **options)
