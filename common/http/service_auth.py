"""Authenticates requests between services by their internal token."""

import re

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, Callers, UntrustedCaller, operation_of
from common.http.middleware import CALLER, OPEN_PATHS, route_of
from common.telemetry import begin_request

REQUEST_IDS = re.compile(r"[0-9a-f]{32}")


def require_internal_token(callers: Callers, *, open_operations: frozenset[str] = frozenset()) -> Middleware:
    """Refuse requests without a token for this service, tenant and operation.

    Routes are `/{tenant_id}/<operation>…`; `open_operations` authenticate their callers themselves.
    """

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if route_of(request) in OPEN_PATHS:
            return await handler(request)
        try:
            request[CALLER] = authenticate_caller(request, callers)
        except UntrustedCaller:
            if _operation_of(request) in open_operations:
                return await handler(request)
            raise
        if REQUEST_IDS.fullmatch(caller_id := request.headers.get(REQUEST_ID, "")):
            begin_request(caller_id)
        return await handler(request)

    return authenticate


def authenticate_caller(request: web.Request, callers: Callers) -> Caller:
    """The caller that the request's token names. Raises UntrustedCaller."""
    token, tenant_id = request.headers.get(INTERNAL_TOKEN, ""), request.match_info.get("tenant_id", "")
    return callers.verify(token, operation=_operation_of(request), tenant_id=tenant_id)


def _operation_of(request: web.Request) -> str:
    # The matched route decides, not the path: `/acme%2Fdownload/claim_installer` reads as both.
    return operation_of(route_of(request).split("/")[2:])
