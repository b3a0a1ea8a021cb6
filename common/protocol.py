"""HTTP on the connection itself: what is no request is answered as a problem too, and tells nothing of our software."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

from aiohttp import web
from structlog.contextvars import bind_contextvars, clear_contextvars

from common.errors import InvalidRequest, Problem
from common.middleware import problem_response
from common.telemetry import log, request_id

POLL = 0.05  # seconds


class Runner(web.AppRunner):
    """Runs an application on connections that answer so."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, **options)
        self._draining = False
        app.on_response_prepare.append(self._end_connection)

    async def drain(self, patience: float) -> None:
        """Take no new connections, and let each that is open end with its next answer; at most `patience` seconds.

        Closing an idle connection at once would lose the request that is just coming over it.
        """
        self._draining = True
        for site in list(self.sites):
            await site.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self.server is not None and self.server.connections:  # noqa: ASYNC110  nothing tells of their end
                    await asyncio.sleep(POLL)

    async def _end_connection(self, _: web.Request, response: web.StreamResponse) -> None:
        if self._draining:
            response.force_close()
            response.headers["Connection"] = "close"

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(server.request_handler, request_factory=server.request_factory, **server._kwargs)


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """One connection. An application's own errors are answered by its middleware and do not come here."""

    __slots__ = ()

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
        clear_contextvars()
        bind_contextvars(request_id=uuid4().hex)
        log.info("request_malformed", status=status, error=type(exc).__name__)
        response = problem_response(
            InvalidRequest("This is not a well-formed HTTP request.")
            if status < 500
            else Problem("Something went wrong here; the log has it under the request id.")
        )
        response.headers.update({"Server": "pkgrepo", "X-Request-Id": request_id()})
        response.force_close()
        return response
