"""The span of a request: what stands before all other middleware where traces are on."""

from contextlib import suppress

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from common.auth.callers import Callers, UntrustedCaller
from common.http.middleware import FAILURE, OPEN_PATHS, ROUTE, route_of, tenant_of
from common.http.service_auth import authenticate_caller
from common.telemetry import request_id
from common.telemetry.tracing import TRACEPARENT, traces


def traced(callers: Callers | None = None) -> list[Middleware]:
    """Trace every request, as a part of the trace of a fellow whom `callers` know.

    Strangers decide neither what is kept of ours nor what turns up in it: of their trace there is a link in a new one.
    """

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        named = request.headers.getall(TRACEPARENT, ())
        context = named[0] if len(named) == 1 else ""
        known_method, fellow = request.method in hdrs.METH_ALL, _is_fellow(request, callers)
        method = request.method if known_method else "_OTHER"
        with traces.request_span(method, parent=context if fellow else "", link="" if fellow else context) as span:
            try:
                response = await handler(request)
                span.set_status(response.status, request.get(FAILURE, ""))
                return response
            finally:
                route = request.get(ROUTE) or route_of(request)
                ours = {"pkgrepo.request_id": request_id(), "pkgrepo.tenant_id": tenant_of(request)}
                name = f"{method if known_method else 'HTTP'} {route}".rstrip()
                span.update(name, {"http.route": route, **ours})

    return [trace] if traces.enabled else []


def _is_fellow(request: web.Request, callers: Callers | None) -> bool:
    if callers is not None:
        with suppress(UntrustedCaller):
            return bool(authenticate_caller(request, callers))
    return False
