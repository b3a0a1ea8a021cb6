"""Calls of the dashboard as a browser makes them."""

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


async def fetch_csrf_token(api: Api, cookie: dict[str, str]) -> str:
    """The CSRF token of the pages of this session."""
    page = await api.anonymous().call("GET", "dashboard", headers=cookie)
    return str(page.body).partition('data-csrf-token="')[2].partition('"')[0]


async def write(api: Api, cookie: dict[str, str], token: str, *path: str, method: str = "POST", **form: str) -> Answer:
    """Call an operation as a page does."""
    headers = {**cookie, "X-CSRF-Token": token}
    return await api.anonymous().call(method, "dashboard", "operations", *path, headers=headers, data=form)
