"""A request for a page with a session, and what pages share: rendering, addresses, parts of long lists, names."""

import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import accumulate
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import aiohttp_jinja2
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, has_permission
from common.auth.sessions import Session
from common.errors import Forbidden, NotAuthenticated, NotFound, Problem
from common.http.middleware import CALLER, BytesResponse
from common.service_client.client import json_of
from gateway.auth.authenticator import ACCESS_VERSION, SESSIONS, TENANT_VERSION
from gateway.auth.directories import USER_DIRECTORY
from gateway.dashboard.static_files import asset_url
from gateway.dashboard.templating import LANGUAGE_COOKIE, LANGUAGES, language_of
from gateway.forwarding.execute import check_permission, find_clients_in_ring, server_information
from gateway.forwarding.proxy import SERVICES
from gateway.routing import Target, find_operation, is_https
from gateway.settings import SETTINGS

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
LANGUAGE_LIFETIME = 31_536_000  # seconds
SESSION_COOKIE = "session"
# Pages send this header with automatic requests, which do not extend the session.
UNATTENDED = "X-Unattended"
# Printable characters of a path or query; never `//host`, `\\host` or a control character, which lead to other sites.
_SAFE_URL = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@?-]|%[0-9A-Fa-f]{2}|/(?!/))*")
_COMPANY_USER = re.compile(r"company-[0-9a-f]{16}")
MAX_URL = 2048  # characters
PAGE_SIZE = 20  # items; a page of clients with all actions has 40 kB
MAX_PAGE = 1_000_000
MAX_NAMES = 100  # packages with their names; others are shown by their ids
MAX_ADDRESS = 6000  # characters of the ids in an address


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
    def has_password(self) -> bool:
        """Whether the user signs in with a password, and not by the company login."""
        return not _COMPANY_USER.fullmatch(self.session.username)

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
        if operation == "find_clients" and query.get("ring"):
            version = self.request[TENANT_VERSION]
            return await find_clients_in_ring(self.request.app, self.caller, version, urlencode(query))
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
        user = request[CALLER] = await request.app[USER_DIRECTORY].by_session(caller, session, request[ACCESS_VERSION])
    except NotAuthenticated:
        return None
    return PageRequest(request, user, session, token, language_of(request))


def cookie_name(caller: Caller, kind: str = SESSION_COOKIE) -> str:
    """The name of a cookie. Each tenant of an origin has its own. No other host can set `__Host-` cookies."""
    return f"{'__Host-' if is_https(caller.base_url) else ''}{kind}-{caller.tenant_id}"


def set_cookie(response: web.Response, caller: Caller, name: str, value: str, max_age: int | None = None) -> None:
    """Set a cookie for `max_age` seconds, or until the browser closes. Scripts cannot read it.

    Lax: the browser must send it when another site redirects back, such as an identity provider.
    """
    secure = is_https(caller.base_url)
    response.set_cookie(name, value, max_age=max_age, path="/", httponly=True, samesite="Lax", secure=secure)


def delete_cookie(response: web.Response, caller: Caller, name: str) -> None:
    response.del_cookie(name, path="/", secure=is_https(caller.base_url), httponly=True, samesite="Lax")


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


def set_language(request: web.Request, caller: Caller, language: str) -> web.Response:
    """Store a language in the browser and redirect back to the page. Raises NotFound."""
    if language not in LANGUAGES:
        raise NotFound("There is no such language.")
    response = web.Response(status=303, headers={"Location": safe_next_url(request.query.get("next", ""), caller)})
    set_cookie(response, caller, LANGUAGE_COOKIE, language, LANGUAGE_LIFETIME)
    return response


async def or_none(answer: Awaitable[Any]) -> Any:
    """An answer that a page can do without; None after a problem."""
    try:
        return await answer
    except Problem:
        return None


def tenant_path(caller: Caller) -> str:
    """The path of the tenant's operations and pages, such as `/acme`."""
    return urlsplit(caller.base_url).path


def safe_next_url(url: str, caller: Caller) -> str:
    """The address of a page of the tenant; the overview for every other address."""
    home, docs = (f"{tenant_path(caller)}/{page}" for page in ("dashboard", "docs"))
    path = url.partition("?")[0]
    is_safe = len(url) <= MAX_URL and _SAFE_URL.fullmatch(url) and not {".", ".."} & set(unquote(path).split("/"))
    return url if is_safe and (path in {home, docs} or path.startswith(f"{home}/")) else home


def sign_in_url(request: web.Request, caller: Caller) -> str:
    """The address of the sign-in page, which redirects to the requested page afterwards."""
    next_url = request.raw_path if request.method in {"GET", "HEAD"} else ""
    return f"{tenant_path(caller)}/sign_in?next={quote(safe_next_url(next_url, caller), safe='/')}"


def with_query(path: str, query: Mapping[str, str | int]) -> str:
    """The address of a page with a query; empty values are left out."""
    sent = urlencode({name: value for name, value in query.items() if value})
    return f"{path}?{sent}" if sent else path


def url_without_alias(request: web.Request, caller: Caller, target: Target) -> str:
    """The path and query of a page below the tenant's own path, for a request to the path of the alias."""
    path = "/".join([tenant_path(caller), *(quote(segment, safe="") for segment in target.segments)])
    query = request.rel_url.raw_query_string
    return f"{path}?{query}" if query else path


# Returns at most `limit` items from an offset on, and the total: `(offset, limit)`.
FetchItems = Callable[[int, int], Awaitable[tuple[Sequence[Any], int]]]


@dataclass(frozen=True)
class ListPart:
    """The items `first` to `last` of `total`. An address is "" where there is no such part."""

    items: Sequence[Any]
    first: int
    total: int
    previous_url: str
    next_url: str

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


async def paginate(request: web.Request, fetch: FetchItems, *, size: int | None = None) -> ListPart:
    """The part of a list that an address asks for, or the nearest existing part."""
    size, number = size or PAGE_SIZE, _page_number(request)
    items, total = await fetch((number - 1) * size, size)
    parts = max(1, -(-total // size))
    if number > parts:
        number = parts
        items, total = await fetch((number - 1) * size, size)
    previous_url, next_url = (str(request.rel_url.update_query(page=str(n))) for n in (number - 1, number + 1))
    first = (number - 1) * size + 1
    return ListPart(items, first, total, previous_url if number > 1 else "", next_url if number < parts else "")


async def paginate_operation(
    page: PageRequest, operation: str, name: str, *, size: int | None = None, **query: str
) -> ListPart:
    """The part of the list `name` in the response of an operation, which takes `offset` and `limit`."""

    async def fetch(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        response = await page.fetch(operation, **query, offset=str(offset), limit=str(limit))
        return response[name], response["total"]

    return await paginate(page.request, fetch, size=size)


async def paginate_list(request: web.Request, items: Sequence[Any]) -> ListPart:
    """The part of a complete list that an address asks for."""

    async def fetch(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        return items[offset : offset + limit], len(items)

    return await paginate(request, fetch)


def _page_number(request: web.Request) -> int:
    text = request.query.get("page", "")
    return min(max(int(text), 1), MAX_PAGE) if text.isascii() and text.isdigit() and len(text) < 10 else 1


async def package_names_of(page: PageRequest, package_ids: Iterable[str]) -> dict[str, str] | None:
    """The names of packages that exist, by their ids, for as many ids as fit an address; None if they are not known."""
    answer = await _find(page, "find_packages", "package_id", package_ids)
    return None if answer is None else {row["package_id"]: row["package_name"] for row in answer.get("packages", ())}


async def client_names_of(page: PageRequest, client_ids: Iterable[str]) -> dict[str, str]:
    """The names of clients that are known to exist, by their ids, for as many ids as fit an address."""
    answer = await _find(page, "find_clients", "client_id", client_ids) or {}
    return {row["client_id"]: row["client_name"] for row in answer.get("clients", ())}


def targets_of(entries: Iterable[Mapping[str, Any]], *names: str) -> list[str]:
    """The different values of targets in the audit log; a list has commas between its values."""
    texts = [entry["target"].get(name, "") for entry in entries for name in names]
    return list(dict.fromkeys(value for text in texts for value in text.split(",") if value))


async def _find(page: PageRequest, operation: str, name: str, values: Iterable[str]) -> Mapping[str, Any] | None:
    """The response for these ids: empty without ids, None if there is none. A page does not fail for want of names."""
    ids = ids_that_fit(values)
    if not ids:
        return {}
    try:
        answer: Mapping[str, Any] = await page.fetch(operation, **{name: ",".join(ids)}, limit=str(len(ids)))
    except Problem:
        return None  # The audit log has refused requests, with any text as an id.
    return answer


def ids_that_fit(values: Iterable[str]) -> list[str]:
    """The first ids, at most `MAX_NAMES`, that fit the address of a request together."""
    ids = list(values)
    sizes = accumulate(len(quote(value)) + len("%2C") for value in ids)
    return [value for value, size in zip(ids, sizes, strict=True) if size <= MAX_ADDRESS][:MAX_NAMES]
