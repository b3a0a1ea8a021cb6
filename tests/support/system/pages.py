"""Calls of the dashboard as a browser makes them."""

import html
import re
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

from tests.support.api import Answer
from tests.support.system.services import PASSWORD, Api

# Text that no page may run.
SCRIPT = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>${alert(1)}"


async def sign_in(api: Api, **fields: str) -> dict[str, str]:
    """Sign in. Returns the browser's cookie header."""
    form = {"username": "admin", "password": PASSWORD, **fields}
    answer = await api.anonymous().call("POST", "sign_in", data=form)
    assert (answer.status, answer.headers["Location"]) == (303, f"{urlsplit(api.base_url).path}/dashboard"), answer
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/"), cookie
    return {"Cookie": f"{cookie.key}={cookie.value}"}


async def load_page(api: Api, *path: str, language: str = "en", **query: str) -> str:
    """A page of the dashboard for the tenant's administrator."""
    headers = {**await sign_in(api), "Accept-Language": language}
    answer = await api.anonymous().call("GET", "dashboard", *path, headers=headers, params=query)
    assert answer.status == 200, answer.body
    return str(answer.body.decode())


async def load_text(api: Api, *path: str, language: str = "en", **query: str) -> str:
    return text_of(await load_page(api, *path, language=language, **query))


def text_of(page: str) -> str:
    """The text of a page without navigation and tags, with single spaces."""
    return html.unescape(" ".join(re.sub("<[^>]+>", " ", main_of(page)).split()))


def main_of(page: str) -> str:
    return page.partition("<main")[2].partition("</main>")[0]


async def fetch_csrf_token(api: Api, cookie: dict[str, str]) -> str:
    """The CSRF token of the pages of this session."""
    page = await api.anonymous().call("GET", "dashboard", headers=cookie)
    return str(page.body).partition('data-csrf-token="')[2].partition('"')[0]


async def write(api: Api, cookie: dict[str, str], token: str, *path: str, method: str = "POST", **form: str) -> Answer:
    """Call an operation as a page does."""
    headers = {**cookie, "X-CSRF-Token": token}
    return await api.anonymous().call(method, "dashboard", "operations", *path, headers=headers, data=form)
