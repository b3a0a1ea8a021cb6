"""Every address for browsers: the pages of the dashboard, one row each, the documentation, and the sign-in.

Scripts of the pages execute operations of the interface with the session of the browser; pages write only so.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from aiohttp import web

from common.auth.internal_tokens import Caller, Deployment
from common.auth.roles import Permission
from common.errors import MethodNotAllowed, NotAuthenticated, Problem, UpstreamProblem
from common.http.middleware import PROBLEM_RENDERER, BytesResponse, problem_response
from common.tenants import is_tenant_id
from gateway.dashboard.page_request import (
    PAGE_HEADERS,
    PageRequest,
    load_page_request,
    redirect_to_sign_in,
    set_language,
)
from gateway.dashboard.pages import administration, clients, live_events, overview, packages, releases, rollout, sign_in
from gateway.dashboard.static_files import STATIC_FILES, asset_response
from gateway.dashboard.templating import language_of, localized
from gateway.forwarding.execute import check_permission, execute_operation
from gateway.operations import Access
from gateway.routing import SINGLE_PREFIX, NoSuchOperation, Target, find_operation
from gateway.settings import SETTINGS

CSRF_HEADER = "X-CSRF-Token"
READ_METHODS = ("GET", "HEAD")
STORAGE_EXCEEDED, TOO_LARGE = 407, 413  # Browsers hide a response with status 407 from scripts.
SIGN_IN = {
    "sign_in": sign_in.handle,
    "sign_in/oidc": sign_in.begin_at_provider,
    "sign_in/oidc/callback": sign_in.finish_at_provider,
}
_WEIGHTED_TYPE = re.compile(r"\s*([\w.+*-]+/[\w.+*-]+)(?:\s*;\s*q=([01](?:\.\d{0,3})?))?", re.ASCII | re.IGNORECASE)
_SESSION_COOKIE = re.compile(r"(?:__Host-)?session-(.+)")
VARIES = {"Vary": "Accept, Cookie"}


@dataclass(frozen=True)
class Page:
    """One row. A part of `path` in braces is a value that `show` gets as an argument.

    A user without the `permission` gets a page with the problem, and no link in the navigation.
    """

    path: str
    show: Callable[..., Awaitable[web.StreamResponse]]
    permission: Permission = Permission.NONE

    @cached_property
    def address(self) -> re.Pattern[str]:
        """Matches the address of this page; its groups are the values. No part of an address has a slash."""
        return re.compile(re.sub(r"{\w+}", "([^/]+)", self.path))


PAGES = (
    Page("", overview.show_overview),
    Page("rollout", rollout.show_rollout, Permission.SETTINGS_READ),
    Page("packages", packages.show_packages, Permission.CATALOG_READ),
    Page("check", packages.show_check, Permission.CATALOG_READ),
    Page("packages/{package_id}", packages.show_package, Permission.CATALOG_READ),
    Page("packages/{package_id}/versions/{version_uid}", packages.show_version, Permission.CATALOG_READ),
    Page("retention", packages.show_retention, Permission.CATALOG_READ),
    Page("publish", packages.show_publish, Permission.CATALOG_WRITE),
    Page("publish/{server_filename}", packages.show_version_form, Permission.CATALOG_WRITE),
    Page("releases", releases.show_releases, Permission.CATALOG_READ),
    Page("clients", clients.show_clients, Permission.CLIENTS_READ),
    Page("blacklist", clients.show_blacklist, Permission.CLIENTS_READ),
    Page("users", administration.show_users, Permission.USERS_WRITE),
    Page("users/company_login", administration.show_company_login, Permission.USERS_WRITE),
    Page("tokens", administration.show_tokens, Permission.TOKENS_WRITE),
    Page("account", administration.show_account),
    Page("settings", administration.show_settings, Permission.SETTINGS_READ),
    Page("release_settings", administration.show_release_settings, Permission.SETTINGS_READ),
    Page("server", administration.show_server, Permission.SETTINGS_READ),
    Page("audit", administration.show_audit, Permission.AUDIT_READ),
    Page("documentation", rollout.show_documentation, Permission.SETTINGS_READ),
)


async def dispatch_page(request: web.Request, caller: Caller, target: Target) -> web.Response:
    """Answer a browser outside the dashboard: the sign-in, the documentation and its files."""
    target.check_complete()
    match target.operation.name, target.segments[1:]:
        case "docs/assets", (_, asset):
            return asset_response(request, asset)
        case name, _ if name in SIGN_IN:
            return await SIGN_IN[name](request, caller)
    sign_in.show_problems(request, caller, request.raw_path)
    if await load_page_request(request, caller) is None:
        return redirect_to_sign_in(request, caller)
    files = request.app[STATIC_FILES]
    if target.operation.name == "docs":
        return BytesResponse(text=files.docs_page, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)
    document = {**files.document, "servers": [{"url": caller.base_url}]}
    return BytesResponse(text=json.dumps(document), content_type="application/json", headers=PAGE_HEADERS)


async def dispatch_dashboard(request: web.Request, caller: Caller, parts: Sequence[str]) -> web.StreamResponse:
    """Answer a browser; `parts` is the address after `/dashboard`."""
    match list(parts):
        case ["assets", version, name]:
            _allow_methods(request, *READ_METHODS)
            return asset_response(request, name, version)
        case ["language", language]:
            _allow_methods(request, *READ_METHODS)
            return set_language(request, caller, language)
    is_operation, is_stream = parts[:1] == ("operations",), (request.method, *parts) == ("GET", "live")
    if is_operation:
        _localize_problems(request)
    elif not is_stream:
        sign_in.show_problems(request, caller, request.raw_path)
    page = await load_page_request(request, caller, attended=not is_stream)
    if page is None:
        if (is_operation or is_stream) and "HX-Request" not in request.headers:
            raise NotAuthenticated("The session has ended.")  # Scripts would follow a redirect.
        return redirect_to_sign_in(request, caller)
    if is_operation:
        return await _execute_for_session(page, tuple(parts[1:]))
    if is_stream:
        return await live_events.stream_events(page)
    return await _show_page(page, tuple(parts))


async def _show_page(page: PageRequest, parts: tuple[str, ...]) -> web.StreamResponse:
    page.request[PROBLEM_RENDERER] = page.render_problem
    if parts == ("sign_out",):
        _allow_methods(page.request, "POST")
        return await sign_in.sign_out(page)
    if parts == ("live",):
        _allow_methods(page.request, "GET")
    page = await releases.with_navigation(page)
    page.request[PROBLEM_RENDERER] = page.render_problem  # A refusal has the same navigation.
    for row in PAGES:
        if match := row.address.fullmatch("/".join(parts)):
            _allow_methods(page.request, *READ_METHODS)
            check_permission(page.caller, row.permission)
            return await row.show(page, *match.groups())
    raise NoSuchOperation


def _allow_methods(request: web.Request, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed(list(methods))


def _localize_problems(request: web.Request) -> None:
    """Answer the problems of this request as JSON in the language of the page."""
    language = language_of(request)
    request[PROBLEM_RENDERER] = lambda problem: _localized_response(language, problem)


async def _execute_for_session(page: PageRequest, path: tuple[str, ...]) -> web.StreamResponse:
    """Execute the operation of an address. Raises its problem.

    Raises NoSuchOperation if administrators may not use it, Forbidden for a write without the session's CSRF token.
    """
    operation, segments = find_operation(page.request.method, path)
    if operation.access not in {Access.ADMINISTRATOR, Access.SESSION}:
        raise NoSuchOperation
    if page.request.method not in READ_METHODS:
        page.verify_csrf_token(page.request.headers.get(CSRF_HEADER, ""))
    target = Target(page.caller.tenant_id, operation, segments)
    return await execute_operation(page.request, page.caller, target)


def _localized_response(language: str, problem: Problem) -> web.Response:
    status = TOO_LARGE if problem.status == STORAGE_EXCEEDED else problem.status
    detail = localized(problem, language)
    translated = UpstreamProblem(detail, status=status, code=problem.code, retry_after=problem.retry_after)
    translated.members, translated.params = problem.members, problem.params
    return problem_response(translated)


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
