"""The documentation pages, the sign-in page before them, and what both load (section 5.2, rule 5)."""

import json
from collections.abc import Mapping
from html import escape
from string import Template
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from common.caller import Caller
from common.client import problem_of
from common.errors import Forbidden, NotAuthenticated, Problem
from common.forms import read_form
from gateway.addresses import Target
from gateway.keys import PAGES, SERVICES, SESSIONS
from gateway.operations import AUTH, CREDENTIALS_LIMIT
from gateway.origin import is_https
from gateway.pages import CONTENT_TYPES, Pages

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
}


async def page(request: web.Request, caller: Caller, target: Target) -> web.Response:
    """Answer a browser's request for one of the pages."""
    pages = request.app[PAGES]
    match target.operation.word, request.method, target.segments[1:]:
        case "docs/assets", _, (_, asset):
            return _file(pages.asset(asset), asset, {"Cache-Control": "public, max-age=3600"})
        case "sign_in", "POST", _:
            return await _sign_in(request, caller)
        case "sign_in", _, _:
            return _sign_in_page(pages, caller)
    try:
        await request.app[SESSIONS].check(caller.tenant_id, request.cookies.get(cookie_name(caller), ""))
    except NotAuthenticated:
        return _redirect(307, f"{_prefix(caller)}/sign_in")
    if target.operation.word == "docs":
        return _file(pages.text("docs.html").encode(), "docs.html", PAGE_HEADERS)
    document = {**pages.document, "servers": [{"url": caller.base_url}]}
    return web.Response(text=json.dumps(document), content_type="application/json", headers=PAGE_HEADERS)


def cookie_name(caller: Caller) -> str:
    """A browser may be signed in to several tenants of one origin, so each has a cookie of its own."""
    return f"{'__Host-' if is_https(caller.base_url) else ''}session-{caller.tenant_id}"


async def _sign_in(request: web.Request, caller: Caller) -> web.Response:
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        raise Forbidden("The sign-in form was sent from another site.")
    try:
        token = await _login(request, caller)
    except Problem as problem:
        if problem.status >= 500:
            raise
        return _sign_in_page(request.app[PAGES], caller, problem)
    response = _redirect(303, f"{_prefix(caller)}/docs")
    response.set_cookie(
        cookie_name(caller), token, path="/", httponly=True, samesite="Lax", secure=is_https(caller.base_url)
    )
    return response


async def _login(request: web.Request, caller: Caller) -> str:
    form = await read_form(request, limit=CREDENTIALS_LIMIT)
    fields = {name: form.get(name) or "" for name in ("username", "password")}
    async with request.app[SERVICES][AUTH].open(
        caller,
        "POST",
        ["login"],
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        data=urlencode(fields).encode(),
        patience=15.0,
    ) as response:
        if response.status != 200:
            raise await problem_of(response)
        return str(json.loads(await response.read())["message"])


def _sign_in_page(pages: Pages, caller: Caller, problem: Problem | None = None) -> web.Response:
    text = Template(pages.text("sign_in.html")).substitute(
        tenant=escape(caller.tenant_id), problem=escape(problem.detail) if problem else ""
    )
    response = _file(text.encode(), "sign_in.html", {**PAGE_HEADERS, **(problem.headers if problem else {})})
    response.set_status(problem.status if problem else 200)
    return response


def _redirect(status: int, path: str) -> web.Response:
    return web.Response(status=status, headers={"Location": path})


def _prefix(caller: Caller) -> str:
    return urlsplit(caller.base_url).path


def _file(content: bytes, name: str, headers: Mapping[str, str]) -> web.Response:
    kind = CONTENT_TYPES[name.rpartition(".")[2]]
    charset = None if kind.startswith("image/") else "utf-8"
    return web.Response(body=content, content_type=kind, charset=charset, headers=headers)
