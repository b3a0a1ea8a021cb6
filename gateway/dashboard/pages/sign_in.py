"""The sign-in page and its end: how a browser gets its session, and gives it back."""

import json
from contextlib import suppress
from functools import partial
from urllib.parse import urlencode

from aiohttp import web

from common.auth.callers import Caller
from common.errors import Forbidden, Problem
from common.http.forms import read_form
from common.http.middleware import PROBLEM_RENDERER, ProblemRenderer
from common.redis import RedisError
from common.service_client.client import problem_of
from gateway.app_keys import SERVICES, SESSIONS
from gateway.dashboard.error_messages import localized
from gateway.dashboard.languages import language_of
from gateway.dashboard.page_request import PageRequest, cookie_name, rendered
from gateway.dashboard.redirects import safe_next_url
from gateway.operations import AUTH, CREDENTIALS_LIMIT
from gateway.routing.client_address import is_https, is_of_our_pages


class ForeignForm(Forbidden):
    """A form that none of our pages sent: who fills it in may not be who signs in."""

    code = "foreign_form"

    def __init__(self) -> None:
        super().__init__("The sign-in form was sent from another site.")


async def page(request: web.Request, visitor: Caller) -> web.Response:
    """The page, or what its form comes to."""
    if request.method == "POST":
        return await _sign_in(request, visitor)
    return _shown(request, visitor, request.query.get("next", ""))


async def sign_out(visit: PageRequest) -> web.Response:
    """End the session, and forget it. Raises Forbidden."""
    form = await read_form(visit.request, limit=CREDENTIALS_LIMIT)
    visit.check_token(form.get("csrf_token") or "")
    await _asked(visit.request, visit.caller, "logout", {"token": visit.token})
    response = _redirect(f"{visit.prefix}/sign_in")
    name = cookie_name(visit.caller)
    response.del_cookie(name, path="/", secure=is_https(visit.caller.base_url), httponly=True, samesite="Lax")
    return response


async def _sign_in(request: web.Request, visitor: Caller) -> web.Response:
    tell_in_place(request, visitor, "")
    if not is_of_our_pages(request, visitor.base_url):
        raise ForeignForm
    form = await read_form(request, limit=CREDENTIALS_LIMIT)
    wanted = form.get("next") or ""
    tell_in_place(request, visitor, wanted)
    fields = {name: form.get(name) or "" for name in ("username", "password")}
    token = (await _asked(request, visitor, "login", fields))["message"]
    await _end_of_before(request, visitor)
    response = _redirect(safe_next_url(wanted, visitor))
    response.set_cookie(
        cookie_name(visitor), token, path="/", httponly=True, samesite="Lax", secure=is_https(visitor.base_url)
    )
    return response


async def _end_of_before(request: web.Request, visitor: Caller) -> None:
    """End the session that the browser had until now; where that cannot be done it ends unused."""
    token = request.cookies.get(cookie_name(visitor), "")
    with suppress(Problem, RedisError):
        await request.app[SESSIONS].validate(visitor.tenant_id, token)
        await _asked(request, visitor, "logout", {"token": token})


def tell_in_place(request: web.Request, visitor: Caller, wanted: str) -> None:
    """Let the sign-in page say why there is no session, and lead to what was wanted once there is one."""
    telling: ProblemRenderer = partial(_shown, request, visitor, wanted)
    request[PROBLEM_RENDERER] = telling


async def _asked(request: web.Request, caller: Caller, operation: str, fields: dict[str, str]) -> dict[str, str]:
    async with request.app[SERVICES][AUTH].open(
        caller,
        "POST",
        [operation],
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        data=urlencode(fields).encode(),
        timeout=15.0,
    ) as response:
        if response.status != 200:
            raise await problem_of(response)
        return dict(json.loads(await response.read()))


def _shown(request: web.Request, visitor: Caller, wanted: str, problem: Problem | None = None) -> web.Response:
    language = language_of(request)
    response = rendered(
        request,
        visitor,
        "sign_in.html",
        language,
        status=problem.status if problem else 200,
        here=safe_next_url(wanted, visitor),
        problem=localized(problem, language) if problem else "",
    )
    response.headers.update(problem.headers if problem else {})
    # Without a referrer browsers would tell the origin of our own form as `null`.
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def _redirect(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})
