"""The documentation pages require a session (section 5.2, rule 5)."""

from http.cookies import SimpleCookie
from unittest.mock import AsyncMock

import pytest
from yarl import URL

from common.errors import Unavailable
from gateway.dashboard.pages import sign_in as sign_in_page
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.pages import sign_in
from tests.support.system.services import PASSWORD, Api, Services


@pytest.mark.parametrize("page", ["docs", "openapi.json"])
async def test_pages_without_a_session_redirect_to_the_sign_in_page(either: Api, page: str) -> None:
    for headers in ({}, {"Cookie": f"session-{either.tenant_id}=forged"}, either.headers, {"Host": "evil.example"}):
        answer = await either.anonymous().call("GET", page, headers=headers)
        assert answer.status == 307
        assert answer.headers["Location"].startswith(f"{either.path}/sign_in?next=/")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "javascript", "X-Forwarded-Prefix": "/evil"},
        {"Forwarded": "host=evil.example", "X-Original-Url": "//evil.example", "Referer": "https://evil.example/"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_no_redirect_leads_to_another_origin(either: Api, headers: dict[str, str]) -> None:
    path, browser = either.path, either.anonymous()
    for url in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "%0d%0aX: 1"):
        named = dict.fromkeys(("next", "url", "redirect", "return_to", "continue"), url)
        page = await browser.call("GET", "sign_in", params=named, headers=headers)
        assert f'name="next" value="{path}/dashboard"'.encode() in page.body
        answer = await browser.call("GET", "docs", params=named, headers=headers)
        assert answer.headers["Location"].startswith(f"{path}/sign_in?next={path}/")
        form = {"username": "admin", "password": PASSWORD, **named}
        answer = await browser.call("POST", "sign_in", params=named, data=form, headers=headers)
        assert (answer.status, answer.headers["Location"]) == (303, f"{path}/dashboard")


async def test_a_browser_signs_in_and_reads_the_documentation(either: Api) -> None:
    cookie = await sign_in(either)
    page = await either.anonymous().call("GET", "docs", headers=cookie)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    document = await either.anonymous().call("GET", "openapi.json", headers=cookie)
    assert document.body["servers"] == [{"url": either.base_url}]
    assert "/get_packages" in document.body["paths"]


async def test_assets_come_from_the_same_origin(either: Api) -> None:
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js", "style.css"):
        assert (await either.anonymous().call("GET", "docs", "assets", asset)).status == 200
    for other in ("docs.html", "sign_in.html", "openapi.yaml", "__init__.py", "LICENSE"):
        assert (await either.anonymous().call("GET", "docs", "assets", other)).status == 404


async def test_wrong_credentials_show_the_sign_in_page_again(either: Api) -> None:
    form = {"username": "<script>", "password": "wrong"}
    answer = await either.anonymous().call("POST", "sign_in", data=form)
    assert answer.status == 401
    assert b"The username or the password is wrong." in answer.body
    assert b"<script>" not in answer.body


async def test_the_sign_in_page_reports_an_unavailable_service(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_page, "_post", AsyncMock(side_effect=Unavailable("Nobody answers.")))
    form = {"username": "admin", "password": PASSWORD}
    answer = await tenant.anonymous().call("POST", "sign_in", data=form)
    assert (answer.status, answer.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert b"A required service is unavailable. Try again in a moment." in answer.body


async def test_a_sign_in_form_of_another_site_is_rejected(either: Api) -> None:
    form, own = {"username": "admin", "password": PASSWORD}, URL(either.base_url)
    origins = (f"http://{own.host}:1", "http://evil.example", "null")
    foreign = [("Sec-Fetch-Site", site) for site in ("cross-site", "same-site", "", "x")]
    foreign += [("Origin", origin) for origin in origins]
    for name, value in foreign:
        answer = await either.anonymous().call("POST", "sign_in", data=form, headers={name: value})
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), (name, value)
        assert b"Another site sent this form. Sign in here." in answer.body
    answer = await either.anonymous().call("POST", "sign_in", data=form, headers={"Origin": str(own.origin())})
    assert (answer.status, "Set-Cookie" in answer.headers) == (303, True)


async def test_a_new_sign_in_ends_the_previous_session(either: Api, other_tenant: Api) -> None:
    cookie, elsewhere = await sign_in(either), await sign_in(other_tenant)
    form = {"username": "admin", "password": "wrong"}
    cookies = {"Cookie": f"{cookie['Cookie']}; {elsewhere['Cookie']}"}
    await either.anonymous().call("POST", "sign_in", data=form, headers=cookies)
    assert (await either.anonymous().call("GET", "docs", headers=cookie)).status == 200
    answer = await either.anonymous().call("POST", "sign_in", data={**form, "password": PASSWORD}, headers=cookies)
    assert answer.status == 303
    assert (await either.anonymous().call("GET", "docs", headers=cookie)).status == 307
    assert (await other_tenant.anonymous().call("GET", "docs", headers=elsewhere)).status == 200


async def test_over_tls_the_cookie_is_secure_and_host_only(services: Services, redis_url: str, tenant: Api) -> None:
    async with run_gateway(services, redis_url, public_url="https://packages.example.com") as address:
        behind = at_gateway(tenant.anonymous(), address)
        answer = await behind.call("POST", "sign_in", data={"username": "admin", "password": PASSWORD})
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "Lax")
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        # A neighbouring host can set the name without the prefix, for all of its domain.
        for name, status in ((f"__Host-session-{tenant.tenant_id}", 200), (f"session-{tenant.tenant_id}", 307)):
            assert (await behind.call("GET", "docs", headers={"Cookie": f"{name}={cookie.value}"})).status == status
