"""A browser's visit: whose session it shows, in which language, and what its pages are made of."""

import hmac
import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import urlencode

import aiohttp_jinja2
import orjson
from aiohttp import web

from common.auth.callers import Caller
from common.auth.sessions import Session
from common.errors import Forbidden, NotAuthenticated, Problem
from common.http.middleware import CALLER, BytesResponse
from common.service_client.client import problem_of
from gateway.app_keys import SERVICES, SESSIONS, SETTINGS
from gateway.dashboard.assets import address_of
from gateway.dashboard.languages import LANGUAGES, language_of
from gateway.dashboard.redirects import prefix_of, to_sign_in
from gateway.routing.client_address import is_https
from gateway.routing.target import find

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
}


# What a page sends along with what it asks of its own accord: a session is used by people, and idle without them.
UNATTENDED = "X-Unattended"


@dataclass(frozen=True)
class PageRequest:
    """One request of a browser that is signed in, and what answers it: `caller` is the administrator.

    `chunk_size` is how many bytes of a file its pages send at once.
    """

    chunk_size: ClassVar[int] = 8 << 20

    request: web.Request
    caller: Caller
    session: Session
    token: str
    language: str

    @property
    def prefix(self) -> str:
        """The path of the tenant's operations."""
        return prefix_of(self.caller)

    @property
    def home(self) -> str:
        """The path of the overview, below which every page stands."""
        return f"{self.prefix}/dashboard"

    @property
    def lasts(self) -> int:
        """The seconds after which the session ends, however much it is used."""
        return max(0, self.session.ends_at - int(time.time()))

    @property
    def idle(self) -> int:
        """The seconds without a use after which the session ends."""
        settings = self.request.app[SETTINGS]
        return min(settings.session_idle, settings.session_lifetime)

    @property
    def csrf_token(self) -> str:
        """What a page sends with what it writes: made of the session's token, which no script and no site can read."""
        return hmac.new(self.token.encode(), b"dashboard", sha256).hexdigest()

    def check_token(self, shown: str) -> None:
        """Raise Forbidden where what a request shows is not what this session's pages send."""
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), self.csrf_token.encode()):
            detail = "This was not sent by a page of your session; load the page again."
            raise Forbidden(detail, reason="foreign_page")

    async def ask(self, operation: str, /, *values: str, **query: str) -> Any:
        """The JSON answer of an operation that reads.

        Raises:
            Answered: the operation's problem.
            Unavailable: its service does not answer.
        """
        row, segments = find("GET", (operation, *values))
        async with self.request.app[SERVICES][row.service].open(
            self.caller,
            row.method,
            segments,
            operation=row.word,
            query=urlencode(query),
            timeout=row.timeout,
            streamed=row.streamed,
        ) as response:
            if response.status >= 400:
                raise await problem_of(response)
            return orjson.loads(await response.read())

    def render(self, template: str, /, *, status: int = 200, **values: Any) -> web.Response:
        """A page: `values` are what its template shows, beside the visit itself."""
        return rendered(self.request, self.caller, template, self.language, status=status, visit=self, **values)


async def visit_of(request: web.Request, visitor: Caller, *, attended: bool = True) -> PageRequest | None:
    """The visit of a browser that shows a session of this tenant; None for one that shows none.

    The session is used by it, unless nobody attends to what is asked.
    """
    token = request.cookies.get(cookie_name(visitor), "")
    sessions = request.app[SESSIONS]
    look = sessions.check if attended and UNATTENDED not in request.headers else sessions.validate
    try:
        session = await look(visitor.tenant_id, token)
    except NotAuthenticated:
        return None
    caller = request[CALLER] = visitor.as_administrator(session.username, session.session_id)
    return PageRequest(request, caller, session, token, language_of(request))


def cookie_name(caller: Caller) -> str:
    """A browser may be signed in to several tenants of one origin, so each has a cookie of its own."""
    return f"{'__Host-' if is_https(caller.base_url) else ''}session-{caller.tenant_id}"


def redirect_to_sign_in(request: web.Request, visitor: Caller) -> web.Response:
    """Lead a browser without a session to the sign-in page: by itself, or as htmx is told to."""
    there = to_sign_in(request, visitor)
    if "HX-Request" in request.headers:
        return BytesResponse(status=401, headers={"HX-Redirect": there, **PAGE_HEADERS})
    # What was sent is not to be sent there again: it was for the page.
    return BytesResponse(status=307 if request.method in {"GET", "HEAD"} else 303, headers={"Location": there})


def rendered(
    request: web.Request, caller: Caller, template: str, language: str, *, status: int = 200, **values: Any
) -> web.Response:
    """A page in a language: `values` beside what every template has."""
    prefix = prefix_of(caller)
    context = {
        "asset": partial(address_of, request, prefix),
        "here": request.raw_path,
        "language": language,
        "languages": LANGUAGES,
        "prefix": prefix,
        "tenant_id": caller.tenant_id,
        **values,
    }
    text = aiohttp_jinja2.render_string(template, request, context)
    return BytesResponse(text=text, status=status, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)


def problem_page(visit: PageRequest, problem: Problem) -> web.Response:
    """A problem as a page."""
    response = visit.render("problem.html", status=problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
