"""THE TABLE of the dashboard's pages, one row each, by their addresses after `/dashboard`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from common.auth.callers import Caller
from common.errors import MethodNotAllowed, NotAuthenticated
from common.http.middleware import PROBLEM_RENDERER, ProblemRenderer
from gateway.dashboard import assets, languages, operations
from gateway.dashboard.page_request import PageRequest, problem_page, redirect_to_sign_in, visit_of
from gateway.dashboard.pages import (
    audit,
    blacklist,
    clients,
    documentation,
    live_events,
    overview,
    package,
    packages,
    publishing,
    server,
    settings,
    sign_in,
    users,
)
from gateway.routing.target import NoSuchOperation

READS = ("GET", "HEAD")


@dataclass(frozen=True)
class Page:
    """One row: a part of `path` in braces is a value, which `show` is given."""

    path: str
    show: Callable[..., Awaitable[web.StreamResponse]]

    def values(self, parts: Sequence[str]) -> list[str] | None:
        """The values of an address that is this page's; None for another's."""
        words = self.path.split("/")
        if len(words) != len(parts):
            return None
        pairs = list(zip(words, parts, strict=True))
        if any(part != word if not word.startswith("{") else not part for word, part in pairs):
            return None
        return [part for word, part in pairs if word.startswith("{")]


PAGES = (
    Page("", overview.show),
    Page("packages", packages.show),
    Page("packages/{package_id}", package.show),
    Page("packages/{package_id}/versions/{version_uid}", package.show_version),
    Page("publish", publishing.show),
    Page("publish/{server_filename}", publishing.show_version),
    Page("clients", clients.show),
    Page("blacklist", blacklist.show),
    Page("users", users.show),
    Page("settings", settings.show),
    Page("server", server.show),
    Page("audit", audit.show),
    Page("documentation", documentation.show),
)


async def page(request: web.Request, visitor: Caller, parts: Sequence[str]) -> web.StreamResponse:
    """Answer a browser, `parts` being those of the address after `/dashboard`."""
    match list(parts):
        case ["assets", version, name]:
            _check_method(request, *READS)
            return assets.answer(request, name, version)
        case ["language", language]:
            _check_method(request, *READS)
            return languages.choose(request, visitor, language)
    wants_operation, watches = parts[:1] == ("operations",), (request.method, *parts) == ("GET", "live")
    if wants_operation:
        operations.tell_scripts(request)
    elif not watches:
        sign_in.tell_in_place(request, visitor, request.raw_path)
    visit = await visit_of(request, visitor, attended=not watches)
    if visit is None:
        if (wants_operation or watches) and "HX-Request" not in request.headers:
            raise NotAuthenticated("The session has ended.")  # A script would follow to the sign-in page.
        return redirect_to_sign_in(request, visitor)
    if wants_operation:
        return await operations.perform_in(visit, tuple(parts[1:]))
    if watches:
        return await live_events.stream(visit)
    telling: ProblemRenderer = partial(problem_page, visit)
    request[PROBLEM_RENDERER] = telling
    return await _shown(visit, tuple(parts) or ("",))


async def _shown(visit: PageRequest, parts: Sequence[str]) -> web.StreamResponse:
    match list(parts):
        case ["sign_out"]:
            _check_method(visit.request, "POST")
            return await sign_in.sign_out(visit)
        case ["live"]:
            _check_method(visit.request, "GET")
    for row in PAGES:
        values = row.values(parts)
        if values is not None:
            _check_method(visit.request, *READS)
            return await row.show(visit, *values)
    raise NoSuchOperation


def _check_method(request: web.Request, *allowed: str) -> None:
    """Raise MethodNotAllowed where an address is asked for in another way than it may be."""
    if request.method not in allowed:
        raise MethodNotAllowed(list(allowed))
