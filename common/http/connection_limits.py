"""HTTP on the connection itself: how long it may take.

What is no request is answered as a problem too. Whoever neither sends nor reads is let go: bodies have a deadline where
they are read, in `common.http.bodies`; everything else has its own here, for aiohttp has none.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

from common.errors import InvalidRequest, Problem
from common.http.default_headers import add_default_headers
from common.http.middleware import problem_response
from common.http.single_route import CATCH_ALL_ROUTE, bypass_router
from common.telemetry import begin_request, log

POLL = 0.05  # seconds
HEAD_TIMEOUT = 15.0  # seconds for a request line and its headers, from the first byte or the opening of a connection
HEAD_LIMIT = 64 << 10  # bytes; aiohttp would take a hundred headers of 8 KiB
READ_TIMEOUT = 60.0  # seconds in which a caller takes what waits for them, or at least `READ_PROGRESS` of it
READ_PROGRESS = 64 << 10  # bytes


class Runner(web.AppRunner):
    """Runs an application on connections that answer so."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, **options)
        self._draining = False
        app.on_response_prepare.append(self._finish)

    async def drain(self, timeout: float) -> None:
        """Let each connection end with its next answer, and after `timeout` seconds take no new ones.

        Those that are idle then are waited for, as long again at most: closing one at once would lose the request that
        is just coming over it.
        """
        self._draining = True
        await asyncio.sleep(timeout)
        for site in list(self.sites):
            await site.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.server is not None and self.server.connections:  # noqa: ASYNC110  nothing tells of their end
                    await asyncio.sleep(POLL)

    async def _finish(self, request: web.Request, response: web.StreamResponse) -> None:
        add_default_headers(response)
        # aiohttp loses what follows a request for a protocol that it does not know, and would go on in its middle; the
        # body of a CONNECT it reads as another request.
        if self._draining or "Upgrade" in request.headers or request.method == hdrs.METH_CONNECT:
            response.force_close()
            response.headers["Connection"] = "close"

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        route = self.app.get(CATCH_ALL_ROUTE)
        handler = bypass_router(route, self.app) if route else server.request_handler
        return _Server(handler, request_factory=server.request_factory, **server._kwargs)


async def expect(request: web.Request) -> None:
    """Ask for a body whose sender waits for that. aiohttp's own answers in its own form to whatever else they say."""
    if request.headers["Expect"].casefold() == "100-continue" and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # The answer itself has not begun.


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Deadline:
    """Does something in time, unless it is ended before."""

    __slots__ = ("_act", "_handle")

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._handle: asyncio.TimerHandle | None = None

    @property
    def begun(self) -> bool:
        return self._handle is not None

    def begin(self, timeout: float) -> None:
        """Do it in so many seconds; where that is so already, nothing changes."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(timeout, self._act)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Connection(web.RequestHandler):
    """One connection. An application's own errors are answered by its middleware and do not come here."""

    __slots__ = ("_head", "_head_size", "_reading", "_taken")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_size = 0
        self._head = _Deadline(self.force_close)
        self._head.begin(HEAD_TIMEOUT)
        self._reading = _Deadline(self._look_for_progress)
        self._taken = 0
        # Whatever waits is looked after, not only what is more than the usual 64 KiB.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=0)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head.end()
        self._reading.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._head.end()
            self._head_size = 0
            self._refuse()
        elif self._head.begun or (self._waiter and not self._waiter.done()):  # Else it is of a body.
            self._head.begin(HEAD_TIMEOUT)
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self.force_close()

    def _refuse(self) -> None:
        """Of what came last, take what we do not answer for what is no request."""
        for place, (message, _) in enumerate(self._messages):
            if not isinstance(message, _ErrInfo) and (message.version < HttpVersion10 or _size(message) > HEAD_LIMIT):
                error = BadHttpMessage("It has too long a head, or is not of HTTP/1.")
                self._messages[place] = (_ErrInfo(400, error, error.message), EMPTY_PAYLOAD)

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._reading_paused:  # aiohttp asks for it after each block, and would look for a request in no bytes.
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin_reading()

    def resume_writing(self) -> None:
        self._reading.end()
        super().resume_writing()

    def _begin_reading(self) -> None:
        self._taken = self._progress()
        self._reading.begin(READ_TIMEOUT)

    def _look_for_progress(self) -> None:
        """Let go whoever took too little of what waits for them; who is slow and steady gets all of it."""
        self._reading.end()
        if self._progress() - self._taken < READ_PROGRESS:
            cast("asyncio.Transport", self.transport).abort()
        else:
            self._begin_reading()

    def _progress(self) -> int:
        """How far the caller is with what waits for them, in bytes: only differences mean something.

        An answer may still be written; of one that is whole, what waits only gets less.
        """
        written = self._current_request.writer.output_size if self._current_request else 0
        return written - cast("asyncio.Transport", self.transport).get_write_buffer_size()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer once and close the connection. Raises ConnectionError where an answer has begun."""
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


def _size(message: RawRequestMessage) -> int:
    """Bytes of a request's line and headers, without what stands between them."""
    return len(message.path) + sum(map(len, chain.from_iterable(message.raw_headers)))
