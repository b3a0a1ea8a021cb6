"""The documentation pages stand behind a browser's session (section 5.2, rule 5)."""

from http.cookies import SimpleCookie
from urllib.parse import urlsplit

import pytest

from tests.system.services import PASSWORD, Api


async def sign_in(api: Api, **fields: str) -> dict[str, str]:
    """A browser's cookie header after signing in."""
    form = {"username": "admin", "password": PASSWORD, **fields}
    answer = await api.anonymous().call("POST", "sign_in", data=form)
    assert (answer.status, answer.headers["Location"]) == (303, f"{urlsplit(api.base_url).path}/docs")
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    return {"Cookie": f"{cookie.key}={cookie.value}"}


@pytest.mark.attack("S23")
@pytest.mark.parametrize("page", ["docs", "openapi.json"])
async def test_without_a_session_the_pages_redirect_to_the_tenants_sign_in_page(either: Api, page: str) -> None:
    for headers in ({}, {"Cookie": f"session-{either.tenant_id}=forged"}, either.headers, {"Host": "evil.example"}):
        answer = await either.anonymous().call("GET", page, headers=headers)
        assert (answer.status, answer.headers["Location"]) == (307, f"{urlsplit(either.base_url).path}/sign_in")


async def test_a_browser_signs_in_and_reads_the_documentation(either: Api) -> None:
    cookie = await sign_in(either)
    page = await either.anonymous().call("GET", "docs", headers=cookie)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    document = await either.anonymous().call("GET", "openapi.json", headers=cookie)
    assert document.body["servers"] == [{"url": either.base_url}]
    assert "/get_packages" in document.body["paths"]


@pytest.mark.attack("S21")
async def test_what_the_pages_load_comes_from_the_same_origin(either: Api) -> None:
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js", "style.css"):
        assert (await either.anonymous().call("GET", "docs", "assets", asset)).status == 200
    for stranger in ("docs.html", "sign_in.html", "openapi.yaml", "__init__.py", "LICENSE"):
        assert (await either.anonymous().call("GET", "docs", "assets", stranger)).status == 404


async def test_wrong_credentials_show_the_sign_in_page_again(either: Api) -> None:
    form = {"username": "<script>", "password": "wrong"}
    answer = await either.anonymous().call("POST", "sign_in", data=form)
    assert answer.status == 401
    assert b"The username or the password is wrong." in answer.body
    assert b"<script>" not in answer.body


@pytest.mark.attack("S20")
async def test_a_sign_in_form_of_another_site_is_refused(either: Api) -> None:
    form = {"username": "admin", "password": PASSWORD}
    answer = await either.anonymous().call("POST", "sign_in", data=form, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 403


@pytest.mark.attack("S20")
async def test_the_cookie_is_no_session_token_for_the_interface(either: Api) -> None:
    assert (await either.anonymous().call("GET", "test", headers=await sign_in(either))).status == 401
