"""The sign-in page, the sign-out, and the way of a browser to the identity provider of its tenant and back."""

from contextlib import suppress
from urllib.parse import urlencode

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.errors import Forbidden, Problem
from common.http.forms import URLENCODED, read_form
from common.http.middleware import PROBLEM_RENDERER
from common.redis import RedisError
from common.service_client.client import json_of
from gateway.auth.authenticator import SESSIONS
from gateway.dashboard.page_request import (
    PageRequest,
    cookie_name,
    delete_cookie,
    render_template,
    safe_next_url,
    set_cookie,
    tenant_path,
)
from gateway.dashboard.templating import language_of, localized
from gateway.forwarding.proxy import SERVICES
from gateway.operations import AUTH, CREDENTIALS_LIMIT
from gateway.routing import is_same_origin

TIMEOUT = 15.0  # seconds
PROVIDER_TIMEOUT = 20.0  # seconds: auth_service asks the provider three times at most
PROVIDER_COOKIE = "sign_in"  # binds a sign-in to its browser
PROVIDER_COOKIE_LIFETIME = 600  # seconds
PROVIDER_ANSWER = ("state", "code", "iss", "error")  # the parameters of a callback that count


class ForeignForm(Forbidden):
    """A sign-in form from another site, which could sign a browser in to the account of an attacker."""

    code = "foreign_form"
    text = "The sign-in form was sent from another site."


async def handle(request: web.Request, caller: Caller) -> web.Response:
    """Show the page, or sign in by its form."""
    if request.method == "POST":
        return await _sign_in(request, caller)
    return _render(request, caller, request.query.get("next", ""))


async def sign_out(page: PageRequest) -> web.Response:
    """End the session and delete its cookie. Raises Forbidden."""
    form = await read_form(page.request, limit=CREDENTIALS_LIMIT)
    page.verify_csrf_token(form.get("csrf_token") or "")
    body = {"token": page.token}
    ended = await page.request.app[SERVICES][AUTH].json(page.caller, "sign_out", body, timeout=TIMEOUT)
    response = _signed_out(page, ended["url"])
    delete_cookie(response, page.caller, cookie_name(page.caller))
    return response


def show_problems(request: web.Request, caller: Caller, next_url: str, username: str = "") -> None:
    """Show the problems of this request on the sign-in page, which redirects to `next_url` afterwards."""
    request[PROBLEM_RENDERER] = lambda problem: _render(request, caller, next_url, problem, username)


async def _sign_in(request: web.Request, caller: Caller) -> web.Response:
    show_problems(request, caller, "")
    if not is_same_origin(request, caller.base_url):
        raise ForeignForm
    form = await read_form(request, limit=CREDENTIALS_LIMIT)
    next_url = form.get("next") or ""
    show_problems(request, caller, next_url, form.get("username") or "")
    fields = {name: form.get(name) or "" for name in ("username", "password", "new_password")}
    token = (await _post(request, caller, "login", fields))["message"]
    return await signed_in(request, caller, token, next_url)


async def signed_in(request: web.Request, caller: Caller, token: str, next_url: str) -> web.Response:
    """Give the browser its new session, and redirect it to a page."""
    await _end_previous_session(request, caller)
    response = _redirect(safe_next_url(next_url, caller))
    set_cookie(response, caller, cookie_name(caller), token)
    return response


async def _end_previous_session(request: web.Request, caller: Caller) -> None:
    """End the browser's previous session. A session that cannot be ended now times out."""
    token = request.cookies.get(cookie_name(caller), "")
    with suppress(Problem, RedisError):
        await request.app[SESSIONS].validate(caller.tenant_id, token)
        await _post(request, caller, "logout", {"token": token})


async def _post(request: web.Request, caller: Caller, operation: str, fields: dict[str, str]) -> dict[str, str]:
    headers, form = {"Content-Type": URLENCODED}, urlencode(fields).encode()
    service = request.app[SERVICES][AUTH]
    async with service.open(caller, "POST", [operation], headers=headers, data=form, timeout=TIMEOUT) as response:
        return dict(await json_of(response))


def _render(
    request: web.Request, caller: Caller, next_url: str, problem: Problem | None = None, username: str = ""
) -> web.Response:
    language = language_of(request)
    response = render_template(
        request,
        caller,
        "sign_in.html",
        language,
        status=problem.status if problem else 200,
        current_url=safe_next_url(next_url, caller),
        problem=localized(problem, language) if problem else "",
        username=username,
        tenant=caller.tenant,
        is_reset=problem is not None
        and (problem.code == "password_change_required" or "new_password" in problem.params.values()),
    )
    response.headers.update(problem.headers if problem else {})
    # Without a referrer, browsers send the origin of our own form as `null`.
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def _signed_out(page: PageRequest, url: str) -> web.Response:
    """The page after a sign-out. It leads to the provider's sign-out at `url`, if there is one."""
    if not url:
        return _redirect(f"{tenant_path(page.caller)}/sign_in")
    response = page.render("signed_out.html", url=url)
    # The policy of the form that was sent allows no redirect to another site.
    response.headers["Refresh"] = f"0; url={url}"
    return response


def _redirect(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


async def begin_at_provider(request: web.Request, caller: Caller) -> web.Response:
    """Redirect the browser to the identity provider. The problem of a provider is shown on the sign-in page."""
    next_url = request.query.get("next", "")
    show_problems(request, caller, next_url)
    wanted = {"next_url": safe_next_url(next_url, caller)}
    begun = await request.app[SERVICES][AUTH].json(caller, "begin_sign_in", wanted, timeout=PROVIDER_TIMEOUT)
    response = web.Response(status=303, headers={"Location": begun["url"]})
    set_cookie(response, caller, cookie_name(caller, PROVIDER_COOKIE), begun["browser"], PROVIDER_COOKIE_LIFETIME)
    return response


async def finish_at_provider(request: web.Request, caller: Caller) -> web.Response:
    """Sign in the browser that comes back from the identity provider."""
    show_problems(request, caller, "")
    # Internal JSON has no invalid characters, and none of these may be left out: an `iss` that is wrong stays wrong.
    answer = {
        name: request.query[name].encode("ascii", "backslashreplace").decode()
        for name in PROVIDER_ANSWER
        if name in request.query
    }
    browser = request.cookies.get(cookie_name(caller, PROVIDER_COOKIE), "")
    body = {"answer": answer, "browser": browser if browser.isascii() else ""}
    finished = await request.app[SERVICES][AUTH].json(caller, "finish_sign_in", body, timeout=PROVIDER_TIMEOUT)
    response = await signed_in(request, caller, finished["token"], finished["next_url"])
    delete_cookie(response, caller, cookie_name(caller, PROVIDER_COOKIE))
    return response
