"""The span of a request; the outermost middleware if tracing is on."""

from contextlib import suppress

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from common.auth.internal_tokens import Callers, UntrustedCaller
from common.http.middleware import FAILURE, OPEN_PATHS, ROUTE, route_of, tenant_of
from common.http.service_auth import authenticate_caller
from common.telemetry import request_id
from common.telemetry.spans import TRACEPARENT
from common.telemetry.tracing import traces


def tracing_middlewares(callers: Callers | None = None) -> list[Middleware]:
    """Trace every request; continue the trace of a service that `callers` authenticates.

    Other senders must not control our sampling or our traces: a new trace has a link to theirs.
    """

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        contexts = request.headers.getall(TRACEPARENT, ())
        context = contexts[0] if len(contexts) == 1 else ""
        is_known, is_service = request.method in hdrs.METH_ALL, _is_service(request, callers)
        method = request.method if is_known else "_OTHER"
        parent, link = (context, "") if is_service else ("", context)
        with traces.request_span(method, parent=parent, link=link) as span:
            try:
                response = await handler(request)
                span.set_status(response.status, request.get(FAILURE, ""))
                return response
            finally:
                route = request.get(ROUTE) or route_of(request)
                ids = {"pkgrepo.request_id": request_id(), "pkgrepo.tenant_id": tenant_of(request)}
                span.update(f"{method if is_known else 'HTTP'} {route}".rstrip(), {"http.route": route, **ids})

    return [trace] if traces.enabled else []


def _is_service(request: web.Request, callers: Callers | None) -> bool:
    if callers is not None:
        with suppress(UntrustedCaller):
            return bool(authenticate_caller(request, callers))
    return False
