"""What every answer says, whatever is asked."""

from aiohttp import hdrs, web
from multidict import CIMultiDict, istr

from common.telemetry import request_id

# What every answer says that does not say otherwise: it is no page, no part of another site's, and not to be kept.
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
    """Give an answer the headers that all of ours have, whatever kind it is."""
    response.headers[hdrs.SERVER] = "pkgrepo"
    response.headers[_REQUEST_ID] = request_id()
    response.headers.merge(SAFE_HEADERS)
