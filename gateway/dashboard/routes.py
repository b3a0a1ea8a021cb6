"""The pages of the dashboard: one row for each address after `/dashboard`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission
from common.errors import MethodNotAllowed, NotAuthenticated
from common.http.middleware import PROBLEM_RENDERER
from gateway.dashboard.assets import asset_response
from gateway.dashboard.languages import set_language
from gateway.dashboard.page_request import PageRequest, load_page_request, redirect_to_sign_in
from gateway.dashboard.pages import (
    audit,
    blacklist,
    clients,
    live_events,
    overview,
    server,
    sign_in,
    tenant,
)
from gateway.dashboard.pages.catalog import package, packages, publishing, releases
from gateway.dashboard.session_operations import READ_METHODS, execute_for_session, localize_problems
from gateway.forwarding.execute import check_permission
from gateway.routing.target import NoSuchOperation


@dataclass(frozen=True)
class Page:
    """One row. A part of `path` in braces is a value that `show` gets as an argument.

    A user without the `permission` gets a page with the problem, and no link in the navigation.
    """

    path: str
    show: Callable[..., Awaitable[web.StreamResponse]]
    permission: Permission = Permission.NONE

    def match(self, parts: Sequence[str]) -> list[str] | None:
        """The values in an address of this page; None for another address."""
        words = self.path.split("/")
        if len(words) != len(parts):
            return None
        pairs = list(zip(words, parts, strict=True))
        if any(part != word if not word.startswith("{") else not part for word, part in pairs):
            return None
        return [part for word, part in pairs if word.startswith("{")]


PAGES = (
    Page("", overview.show),
    Page("rollout", overview.show_rollout, Permission.SETTINGS_READ),
    Page("packages", packages.show, Permission.CATALOG_READ),
    Page("check", packages.show_check, Permission.CATALOG_READ),
    Page("packages/{package_id}", package.show, Permission.CATALOG_READ),
    Page("packages/{package_id}/versions/{version_uid}", package.show_version, Permission.CATALOG_READ),
    Page("retention", packages.show_retention, Permission.CATALOG_READ),
    Page("publish", publishing.show, Permission.CATALOG_WRITE),
    Page("publish/{server_filename}", publishing.show_version, Permission.CATALOG_WRITE),
    Page("releases", releases.show, Permission.CATALOG_READ),
    Page("clients", clients.show, Permission.CLIENTS_READ),
    Page("blacklist", blacklist.show, Permission.CLIENTS_READ),
    Page("users", tenant.show_users, Permission.USERS_WRITE),
    Page("tokens", tenant.show_tokens, Permission.TOKENS_WRITE),
    Page("account", tenant.show_account),
    Page("settings", tenant.show_settings, Permission.SETTINGS_READ),
    Page("server", server.show, Permission.SETTINGS_READ),
    Page("audit", audit.show, Permission.AUDIT_READ),
    Page("documentation", tenant.show_documentation, Permission.SETTINGS_READ),
)


async def dispatch(request: web.Request, caller: Caller, parts: Sequence[str]) -> web.StreamResponse:
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
        localize_problems(request)
    elif not is_stream:
        sign_in.show_problems(request, caller, request.raw_path)
    page = await load_page_request(request, caller, attended=not is_stream)
    if page is None:
        if (is_operation or is_stream) and "HX-Request" not in request.headers:
            raise NotAuthenticated("The session has ended.")  # Scripts would follow a redirect.
        return redirect_to_sign_in(request, caller)
    if is_operation:
        return await execute_for_session(page, tuple(parts[1:]))
    if is_stream:
        return await live_events.stream(page)
    request[PROBLEM_RENDERER] = page.render_problem
    return await _show_page(page, tuple(parts) or ("",))


async def _show_page(page: PageRequest, parts: tuple[str, ...]) -> web.StreamResponse:
    if parts == ("sign_out",):
        _allow_methods(page.request, "POST")
        return await sign_in.sign_out(page)
    if parts == ("live",):
        _allow_methods(page.request, "GET")
    for row in PAGES:
        values = row.match(parts)
        if values is not None:
            _allow_methods(page.request, *READ_METHODS)
            check_permission(page.caller, row.permission)
            return await row.show(await releases.with_navigation(page), *values)
    raise NoSuchOperation


def _allow_methods(request: web.Request, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed(list(methods))
