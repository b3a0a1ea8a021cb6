"""Limits of HTTP connections: time for a request's head, its size, and time for a caller to read the response.

aiohttp has none of these limits. `common.http.bodies` limits the time for a request's body. Malformed requests are
answered with a problem, too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDict, istr

from common.errors import InvalidRequest, Problem
from common.http.aiohttp_private import ServerConnection, ServerRunner, set_match_info
from common.http.middleware import OPEN_PATHS, problem_response
from common.telemetry import begin_request, log, request_id

POLL = 0.05  # seconds
HEAD_TIMEOUT = 15.0  # seconds for a request line and its headers, from the first byte or the opening of a connection
HEAD_LIMIT = 64 << 10  # bytes; aiohttp would accept a hundred headers of 8 KiB
READ_TIMEOUT = 60.0  # seconds in which a caller must read all waiting bytes, or at least `READ_PROGRESS`
READ_PROGRESS = 64 << 10  # bytes
LONG_BODY = 256 << 10  # bytes that wait in the socket, not in memory, until their request is being handled

# Defaults for responses that are no page, not embedded in other sites, and not cached.
SAFE_HEADERS = CIMultiDict(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
# The route that takes every path but the probes'.
CATCH_ALL_ROUTE: web.AppKey[web.AbstractRoute] = web.AppKey("everything", web.AbstractRoute)
_REQUEST_ID = istr("X-Request-Id")


class _Deadline:
    """Calls a function after a timeout, unless it is cancelled before."""

    __slots__ = ("_call", "_handle")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, timeout: float) -> None:
        """Start the timeout, in seconds; a running one goes on."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(timeout, self._call)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LimitedConnection(ServerConnection):
    """One connection with its limits. The middleware answers an application's own errors, not this class."""

    __slots__ = ("_head_deadline", "_head_size", "_progress_before", "_read_deadline")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_size = 0
        self._head_deadline = _Deadline(self.force_close)
        self._head_deadline.start(HEAD_TIMEOUT)
        self._read_deadline = _Deadline(self._check_progress)
        self._progress_before = 0
        # Any waiting byte starts the read deadline, not only more than the usual 64 KiB. With TLS, a transport pauses
        # when it reaches its limit: 0 would pause it for ever. It does not see the last 64 KiB, which are encrypted.
        limit = 0 if transport.get_extra_info("sslcontext") is None else 1  # bytes
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=limit)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_deadline.cancel()
        self._read_deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.request_count
        super().data_received(data)
        if self.request_count > before:
            self._head_deadline.cancel()
            self._head_size = 0
            self.reject_requests(_is_rejected, "It has too long a head, or is not of HTTP/1.")
            self.pause_long_body(LONG_BODY)
        elif self._head_deadline.is_running or self.is_waiting_for_request:  # Otherwise it is part of a body.
            self._head_deadline.start(HEAD_TIMEOUT)
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self.force_close()

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self.is_reading_paused:  # aiohttp calls it after each block, and would then parse an empty request.
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_deadline()

    def resume_writing(self) -> None:
        self._read_deadline.cancel()
        super().resume_writing()

    def _start_read_deadline(self) -> None:
        self._progress_before = self._progress()
        self._read_deadline.start(READ_TIMEOUT)

    def _check_progress(self) -> None:
        """Disconnect a caller who read too little; a slow but steady one gets everything."""
        self._read_deadline.cancel()
        if self._progress() - self._progress_before < READ_PROGRESS:
            cast("asyncio.Transport", self.transport).abort()
        else:
            self._start_read_deadline()

    def _progress(self) -> int:
        """The bytes that the caller has read, plus a constant: written bytes minus waiting ones."""
        return self.output_size - cast("asyncio.Transport", self.transport).get_write_buffer_size()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer with a problem and close the connection. Raises ConnectionError if a response has begun."""
        if request.writer.output_size > 0:
            raise ConnectionError("An answer has begun; there cannot be another in it.")
        begin_request()
        log.info("request_malformed", status=status, error=type(exc).__name__)
        response = problem_response(
            InvalidRequest("This is not a well-formed HTTP request.")
            if status < 500
            else Problem("Something went wrong here; the log has it under the request id.")
        )
        add_default_headers(response)
        response.force_close()
        return response


class Runner(ServerRunner):
    """Runs an application on limited connections."""

    connection_class = LimitedConnection

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, **options)
        self._is_draining = False
        app.on_response_prepare.append(self._finish)

    def request_handler(self, default: Callable[..., Any]) -> Callable[..., Any]:
        return bypass_router(self.app, default) if CATCH_ALL_ROUTE in self.app else default

    async def drain(self, timeout: float) -> None:
        """Close each connection after its next response, and accept no new ones after `timeout` seconds.

        Then wait for the remaining connections, at most as long again: closing an idle one at once would lose a request
        that is just arriving.
        """
        self._is_draining = True
        await asyncio.sleep(timeout)
        for site in list(self.sites):
            await site.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.server is not None and self.server.connections:  # noqa: ASYNC110  there is no event
                    await asyncio.sleep(POLL)

    async def _finish(self, request: web.Request, response: web.StreamResponse) -> None:
        add_default_headers(response)
        # aiohttp loses the bytes after a request for an unknown protocol, and reads the body of a CONNECT as a request.
        if self._is_draining or "Upgrade" in request.headers or request.method == hdrs.METH_CONNECT:
            response.force_close()
            response.headers["Connection"] = "close"


def add_default_headers(response: web.StreamResponse) -> None:
    """Add the server, the request id, and the safe defaults of headers that the response does not set."""
    response.headers[hdrs.SERVER] = "pkgrepo"
    response.headers[_REQUEST_ID] = request_id()
    response.headers.merge(SAFE_HEADERS)


async def expect(request: web.Request) -> None:
    """Answer `Expect: 100-continue`, and ignore other expectations; aiohttp would answer those in its own form."""
    if request.headers["Expect"].casefold() == "100-continue" and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # The response itself has not begun.


def _is_rejected(message: RawRequestMessage) -> bool:
    size = len(message.path) + sum(map(len, chain.from_iterable(message.raw_headers)))
    return message.version < HttpVersion10 or size > HEAD_LIMIT


def bypass_router(
    app: web.Application, default: Callable[..., Awaitable[web.StreamResponse]]
) -> Callable[..., Awaitable[web.StreamResponse]]:
    """The handler of `app`'s requests: the catch-all route, or `default`, which uses the router."""
    route = app[CATCH_ALL_ROUTE]
    match_info = web.UrlMappingMatchInfo({}, route)
    match_info.add_app(app)
    match_info.freeze()
    handler = route.handler
    for middleware in reversed(app.middlewares):
        handler = partial(middleware, handler=handler)

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        if request.path in OPEN_PATHS or request.method == hdrs.METH_CONNECT or hdrs.EXPECT in request.headers:
            return default(request)
        set_match_info(request, match_info)
        return handler(request)

    return handle
