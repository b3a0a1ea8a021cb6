"""HTTP on the connection itself: what is no request is answered as a problem too, and tells nothing of our software."""

from uuid import uuid4

from aiohttp import web
from structlog.contextvars import bind_contextvars, clear_contextvars

from common.errors import InvalidRequest, Problem
from common.middleware import problem_response, request_id
from common.telemetry import log


class Runner(web.AppRunner):
    """Runs an application on connections that answer so."""

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
