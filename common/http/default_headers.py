"""The headers of every response."""

from aiohttp import hdrs, web
from multidict import CIMultiDict, istr

from common.telemetry import request_id

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
_REQUEST_ID = istr("X-Request-Id")


def add_default_headers(response: web.StreamResponse) -> None:
    """Add the server, the request id, and the safe defaults of headers that the response does not set."""
    response.headers[hdrs.SERVER] = "pkgrepo"
    response.headers[_REQUEST_ID] = request_id()
    response.headers.merge(SAFE_HEADERS)
