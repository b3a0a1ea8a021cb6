"""The styles and scripts that the pages load. Browsers cache them until the version in their address changes."""

from aiohttp import web

from common.http.middleware import BytesResponse
from gateway.app_keys import STATIC_FILES

MAX_AGE, VERSIONED_MAX_AGE = 3600, 31_536_000  # seconds


def asset_url(request: web.Request, tenant_path: str, name: str) -> str:
    """The address of an asset. All assets of a version are in one folder, because scripts import each other."""
    pages = request.app[STATIC_FILES]
    pages.asset(name)
    return f"{tenant_path}/dashboard/assets/{pages.version}/{name}"


def asset_response(request: web.Request, name: str, version: str = "") -> web.Response:
    """An asset; `version` is the one in its address. Raises NotFound."""
    pages = request.app[STATIC_FILES]
    asset = pages.asset(name)
    max_age = f"{VERSIONED_MAX_AGE}, immutable" if version == pages.version else f"{MAX_AGE}"
    headers = {"Cache-Control": f"public, max-age={max_age}", "Vary": "Accept-Encoding"}
    body = asset.content
    if asset.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = asset.compressed
    charset = None if asset.content_type == "image/png" else "utf-8"
    return BytesResponse(body=body, content_type=asset.content_type, charset=charset, headers=headers)
