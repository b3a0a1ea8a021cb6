"""A request for a page with a session: its caller, its language, and the functions that build the page."""

import hmac
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import urlencode

import aiohttp_jinja2
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, has_permission
from common.auth.sessions import Session
from common.errors import Forbidden, NotAuthenticated, Problem
from common.http.middleware import CALLER, BytesResponse
from common.service_client.client import json_of
from gateway.app_keys import SERVICES, SESSIONS, SETTINGS, USER_DIRECTORY
from gateway.auth.authenticator import TENANT_VERSION
from gateway.dashboard.assets import asset_url
from gateway.dashboard.languages import LANGUAGES, language_of
from gateway.dashboard.redirects import sign_in_url, tenant_path
from gateway.forwarding.composed import server_information
from gateway.forwarding.execute import check_permission
from gateway.routing.client_address import is_https
from gateway.routing.target import find_operation

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    # Windows of other sites cannot hold on to a page. Pages themselves use the clipboard only.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": (
        "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), serial=(), usb=()"
    ),
}
# Pages send this header with automatic requests, which do not extend the session.
UNATTENDED = "X-Unattended"


@dataclass(frozen=True)
class PageRequest:
    """One request of a browser with a session. `caller` is the user.

    `rings` are the tenant's, and `releases` is the number of versions in flight.
    """

    chunk_size: ClassVar[int] = 8 << 20  # bytes of a file that a page uploads in one request

    request: web.Request
    caller: Caller
    session: Session
    token: str
    language: str
    rings: tuple[str, ...] = ()
    releases: int = 0

    @property
    def home(self) -> str:
        """The path of the overview; all pages are below it."""
        return f"{tenant_path(self.caller)}/dashboard"

    def may(self, permission: str) -> bool:
        """Whether the user has a permission. Pages leave out what the user cannot do."""
        return has_permission(self.caller.roles, Permission(permission))

    @property
    def has_releases(self) -> bool:
        """Whether the navigation has the page of the releases: with rings, or with a version that is held."""
        return bool(self.rings or self.releases)

    @property
    def seconds_left(self) -> int:
        """The seconds until the session ends, however much it is used."""
        return max(0, self.session.ends_at - int(time.time()))

    @property
    def idle_timeout(self) -> int:
        """The seconds without use after which the session ends."""
        settings = self.request.app[SETTINGS]
        return min(settings.session_idle, settings.session_lifetime)

    @property
    def csrf_token(self) -> str:
        """The token that pages send with every write. Scripts and other sites cannot read the session's token."""
        return hmac.new(self.token.encode(), b"dashboard", sha256).hexdigest()

    def verify_csrf_token(self, sent: str) -> None:
        """Raise Forbidden if a request has not the CSRF token of this session."""
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.csrf_token.encode()):
            detail = "This was not sent by a page of your session; load the page again."
            raise Forbidden(detail, reason="foreign_page")

    async def fetch(self, operation: str, /, *values: str, **query: str) -> Any:
        """The JSON response of a reading operation. Raises its problem, or Unavailable."""
        row, segments = find_operation("GET", (operation, *values))
        check_permission(self.caller, row.permission)
        async with self.request.app[SERVICES][row.service].open(
            self.caller,
            row.method,
            segments,
            operation=row.name,
            query=urlencode(query),
            timeout=row.timeout,
            streamed=row.streamed,
        ) as response:
            return await json_of(response)

    async def server_information(self) -> Mapping[str, Any]:
        """The limits, usage and settings of the tenant. Raises PermissionMissing or Unavailable."""
        check_permission(self.caller, Permission.SETTINGS_READ)
        return await server_information(self.request.app, self.caller, self.request[TENANT_VERSION])

    def render(self, template: str, /, *, status: int = 200, **values: Any) -> web.Response:
        """Render a page. The template gets `values`, and this object as `page`."""
        return render_template(self.request, self.caller, template, self.language, status=status, page=self, **values)

    def render_problem(self, problem: Problem) -> web.Response:
        """Render a problem as a page."""
        response = self.render("problem.html", status=problem.status, problem=problem)
        response.headers.update(problem.headers)
        return response


async def load_page_request(request: web.Request, caller: Caller, *, attended: bool = True) -> PageRequest | None:
    """The page request of a browser with a session, else None. An attended request extends the session."""
    token = request.cookies.get(cookie_name(caller), "")
    sessions = request.app[SESSIONS]
    check = sessions.check if attended and UNATTENDED not in request.headers else sessions.validate
    try:
        session = await check(caller.tenant_id, token)
        user = request[CALLER] = await request.app[USER_DIRECTORY].identify(caller, session, request[TENANT_VERSION])
    except NotAuthenticated:
        return None
    return PageRequest(request, user, session, token, language_of(request))


def cookie_name(caller: Caller) -> str:
    """The name of the session cookie. Each tenant of an origin has its own."""
    return f"{'__Host-' if is_https(caller.base_url) else ''}session-{caller.tenant_id}"


def redirect_to_sign_in(request: web.Request, caller: Caller) -> web.Response:
    """Redirect a browser without a session to the sign-in page; htmx needs a header for that."""
    url = sign_in_url(request, caller)
    if "HX-Request" in request.headers:
        return BytesResponse(status=401, headers={"HX-Redirect": url, **PAGE_HEADERS})
    # 303 drops the body of a write: it was not for the sign-in page.
    return BytesResponse(status=307 if request.method in {"GET", "HEAD"} else 303, headers={"Location": url})


def render_template(
    request: web.Request, caller: Caller, template: str, language: str, *, status: int = 200, **values: Any
) -> web.Response:
    """Render a template with `values` and the values that every template has."""
    path = tenant_path(caller)
    context = {
        "asset": partial(asset_url, request, path),
        "current_url": request.raw_path,
        "language": language,
        "languages": LANGUAGES,
        "tenant_path": path,
        "tenant_id": caller.tenant_id,
        **values,
    }
    text = aiohttp_jinja2.render_string(template, request, context)
    return BytesResponse(text=text, status=status, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)


async def or_none(answer: Awaitable[Any]) -> Any:
    """An answer that a page can do without; None after a problem."""
    try:
        return await answer
    except Problem:
        return None
