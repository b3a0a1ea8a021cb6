"""The way of a browser to the identity provider of its tenant, and back."""

from aiohttp import web

from common.auth.internal_tokens import Caller
from gateway.app_keys import SERVICES
from gateway.dashboard.pages.sign_in import show_problems, signed_in
from gateway.dashboard.redirects import safe_next_url
from gateway.operations import AUTH
from gateway.routing.client_address import is_https

TIMEOUT = 20.0  # seconds: auth_service asks the provider three times at most
LIFETIME = 600  # seconds of the cookie
ANSWER = ("state", "code", "iss", "error")  # the parameters of a callback that count


async def begin(request: web.Request, caller: Caller) -> web.Response:
    """Redirect the browser to the identity provider. The problem of a provider is shown on the sign-in page."""
    next_url = request.query.get("next", "")
    show_problems(request, caller, next_url)
    wanted = {"next_url": safe_next_url(next_url, caller)}
    begun = await request.app[SERVICES][AUTH].json(caller, "begin_sign_in", wanted, timeout=TIMEOUT)
    response = web.Response(status=303, headers={"Location": begun["url"]})
    # Lax: the browser must send it when the provider redirects it back.
    response.set_cookie(
        _cookie_name(caller),
        begun["browser"],
        max_age=LIFETIME,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=is_https(caller.base_url),
    )
    return response


async def finish(request: web.Request, caller: Caller) -> web.Response:
    """Sign in the browser that comes back from the identity provider."""
    show_problems(request, caller, "")
    # Internal JSON has no invalid characters, and none of these may be left out: an `iss` that is wrong stays wrong.
    answer = {
        name: request.query[name].encode("ascii", "backslashreplace").decode()
        for name in ANSWER
        if name in request.query
    }
    browser = request.cookies.get(_cookie_name(caller), "")
    body = {"answer": answer, "browser": browser if browser.isascii() else ""}
    finished = await request.app[SERVICES][AUTH].json(caller, "finish_sign_in", body, timeout=TIMEOUT)
    response = await signed_in(request, caller, finished["token"], finished["next_url"])
    secure = is_https(caller.base_url)
    response.del_cookie(_cookie_name(caller), path="/", secure=secure, httponly=True, samesite="Lax")
    return response


def _cookie_name(caller: Caller) -> str:
    """The name of the cookie that binds a sign-in to its browser. No other host can set `__Host-` cookies."""
    return f"{'__Host-' if is_https(caller.base_url) else ''}sign_in-{caller.tenant_id}"
