"""What the pages load: styles and scripts, kept by browsers until there are others."""

from aiohttp import web

from common.http.middleware import BytesResponse
from gateway.app_keys import STATIC_FILES

UNNAMED, NAMED = 3600, 31_536_000  # seconds that a browser keeps a file, and one whose address names its version


def address_of(request: web.Request, prefix: str, name: str) -> str:
    """Where a page finds a file, `prefix` being the path of the tenant's operations.

    All files of a version are in one folder, so that a script finds the others that it imports.
    """
    pages = request.app[STATIC_FILES]
    pages.asset(name)
    return f"{prefix}/dashboard/assets/{pages.version}/{name}"


def answer(request: web.Request, name: str, version: str = "") -> web.Response:
    """A file, `version` being that which its address names. Raises NotFound."""
    asset = request.app[STATIC_FILES].asset(name)
    named = version == request.app[STATIC_FILES].version
    headers = {
        "Cache-Control": f"public, max-age={NAMED}, immutable" if named else f"public, max-age={UNNAMED}",
        "Vary": "Accept-Encoding",
    }
    body = asset.content
    if asset.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = asset.compressed
    charset = None if asset.content_type == "image/png" else "utf-8"
    return BytesResponse(body=body, content_type=asset.content_type, charset=charset, headers=headers)
