"""Whom a service answers: the gateway, and other services, for the caller that they vouch for."""

import re
from functools import lru_cache

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from common.auth.callers import INTERNAL_TOKEN, REQUEST_ID, Caller, Callers, UntrustedCaller, operation_of
from common.http.middleware import CALLER, OPEN_PATHS, route_of
from common.telemetry import begin_request

REQUEST_IDS = re.compile(r"[0-9a-f]{32}")


def require_internal_token(callers: Callers, *, open_operations: frozenset[str] = frozenset()) -> Middleware:
    """Refuse whatever does not carry a token for this service, this tenant and this operation.

    Routes are `/{tenant_id}/<operation>…`; `open_operations` check their callers themselves.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if route_of(request) in OPEN_PATHS:
            return await handler(request)
        try:
            request[CALLER] = authenticate_caller(request, callers)
        except UntrustedCaller:
            if _operation_of(request) in open_operations:
                return await handler(request)
            raise
        if REQUEST_IDS.fullmatch(given := request.headers.get(REQUEST_ID, "")):
            begin_request(given)
        return await handler(request)

    return check


def authenticate_caller(request: web.Request, callers: Callers) -> Caller:
    """Whom a token for this very operation names. Raises UntrustedCaller where there is none."""
    return callers.verify(
        request.headers.get(INTERNAL_TOKEN, ""),
        operation=_operation_of(request),
        tenant_id=request.match_info.get("tenant_id", ""),
    )


def _operation_of(request: web.Request) -> str:
    # The route that will answer decides, not the path: `/acme%2Fdownload/claim_installer` reads as both.
    return _named_by(route_of(request))


@lru_cache(maxsize=256)
def _named_by(route: str) -> str:
    """The operation that a route such as `/{tenant_id}/edit_client/{client_id}` answers."""
    return operation_of(route.split("/")[2:])
