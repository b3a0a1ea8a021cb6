"""The first page of a browser that asks for no operation, but for `/` or the path of a tenant."""

import re

from aiohttp import web

from common.auth.internal_tokens import Deployment
from common.http.middleware import BytesResponse
from common.tenants import is_tenant_id
from gateway.app_keys import SETTINGS
from gateway.routing.target import SINGLE_PREFIX, NoSuchOperation

_WEIGHTED_TYPE = re.compile(r"\s*([\w.+*-]+/[\w.+*-]+)(?:\s*;\s*q=([01](?:\.\d{0,3})?))?", re.ASCII | re.IGNORECASE)
_SESSION_COOKIE = re.compile(r"(?:__Host-)?session-(.+)")
VARIES = {"Vary": "Accept, Cookie"}


class NoSuchPath(NoSuchOperation):
    """A path that a browser can open, and a program cannot."""

    @property
    def headers(self) -> dict[str, str]:
        return VARIES


def redirect_browser(request: web.Request) -> web.Response:
    """Redirect a browser to the dashboard, which has the sign-in. Raises NoSuchOperation for all other requests."""
    path = dashboard_path(request)
    if path is None:
        raise NoSuchOperation
    if path == "" or not prefers_html(",".join(request.headers.getall("Accept", ()))):
        raise NoSuchPath
    return BytesResponse(status=303, headers={"Location": path, "Cache-Control": "no-store", **VARIES})


def dashboard_path(request: web.Request) -> str | None:
    """The dashboard of the tenant in a path; "" for an unknown tenant, None for a path that is no tenant's."""
    settings = request.app[SETTINGS]
    path = request.raw_path.partition("?")[0]
    single = "/".join(["", *SINGLE_PREFIX])
    if request.method not in {"GET", "HEAD"}:
        return None
    if settings.deployment is Deployment.SINGLE:
        return f"{single}/dashboard" if path in {"/", single, f"{single}/"} else None
    tenant_id = path.removeprefix("/").removesuffix("/")
    if path == "/":
        tenant_id = _tenant_of_session(request) or settings.default_tenant
        return f"/{tenant_id}/dashboard" if tenant_id else ""
    return f"/{tenant_id}/dashboard" if is_tenant_id(tenant_id) else None


def prefers_html(accept: str) -> bool:
    """Whether an Accept header prefers a page to JSON (RFC 9110, section 12.5.1)."""
    matches = [match for part in accept.split(",") if (match := _WEIGHTED_TYPE.fullmatch(part.strip()))]
    weights = {match[1].lower(): float(match[2] or 1) for match in matches}
    others = max(weights.get(kind, 0) for kind in ("application/json", "application/*", "*/*"))
    return weights.get("text/html", 0) > others


def _tenant_of_session(request: web.Request) -> str:
    """The tenant of the first session cookie; "" without one. The dashboard checks the session."""
    names = (_SESSION_COOKIE.fullmatch(name) for name in request.cookies)
    return next((name[1] for name in names if name and is_tenant_id(name[1])), "")
