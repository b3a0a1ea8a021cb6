"""The span of a request: what stands before all other middleware where traces are on."""

from contextlib import suppress

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from common.caller import Callers, UntrustedCaller
from common.middleware import FAILURE, OPEN_PATHS, ROUTE, route_of, tenant_of
from common.middleware.fellows import vouched_for
from common.telemetry import request_id
from common.telemetry.traces import TRACEPARENT, traces


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
        method = request.method if request.method in hdrs.METH_ALL else "_OTHER"
        known = _is_known(request, callers)
        with traces.answering(method, parent=context if known else "", link="" if known else context) as span:
            try:
                response = await handler(request)
                span.answered(response.status, request.get(FAILURE, ""))
                return response
            finally:
                route = request.get(ROUTE) or route_of(request)
                told = {
                    "http.route": route,
                    "pkgrepo.request_id": request_id(),
                    "pkgrepo.tenant_id": tenant_of(request),
                }
                span.told(f"{method} {route}".rstrip().replace("_OTHER", "HTTP"), told)

    return [trace] if traces.on else []


def _is_known(request: web.Request, callers: Callers | None) -> bool:
    if callers is not None:
        with suppress(UntrustedCaller):
            return bool(vouched_for(request, callers))
    return False
