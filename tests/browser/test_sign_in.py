"""Sign-in, sign-out and language."""

from dataclasses import replace

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, sign_in, start_session, submit_credentials
from tests.support.system.services import PASSWORD, Api

pytestmark = pytest.mark.full


async def test_an_administrator_signs_in_and_sees_the_overview(open_page: Open, tenant: Api) -> None:
    visitor = await sign_in(await open_page(), tenant)
    await expect(visitor.page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_the_sign_in_redirects_to_the_requested_page(open_page: Open, tenant: Api) -> None:
    page = await open_page()
    await page.goto(f"{tenant.base_url}/docs")
    await submit_credentials(page)
    await expect(page).to_have_url(f"{tenant.base_url}/docs")


async def test_a_wrong_password_keeps_the_requested_page(open_page: Open, tenant: Api) -> None:
    page = await open_page()
    await page.goto(f"{tenant.base_url}/docs")
    await submit_credentials(page, "wrong")
    await expect(page.get_by_role("alert")).to_have_text("The username or the password is wrong.")
    await submit_credentials(page)
    await expect(page).to_have_url(f"{tenant.base_url}/docs")


async def test_a_wrong_password_keeps_the_username(open_page: Open, tenant: Api) -> None:
    page = await open_page()
    await page.goto(f"{tenant.base_url}/sign_in")
    await submit_credentials(page, "wrong")
    await expect(page.get_by_label("Username")).to_have_value("admin")
    await expect(page.get_by_label("Password")).to_be_focused()


async def test_over_plain_http_only_our_own_form_signs_in(open_page: Open, tenant: Api) -> None:
    page, named = await open_page(), replace(tenant, base_url=tenant.base_url.replace("127.0.0.1", "packages.test"))
    await sign_in(page, named)
    await page.context.clear_cookies()
    form = f'''<form method="post" action="{named.base_url}/sign_in"><input name="username" value="admin">
        <input name="password" value="{PASSWORD}"><button>Win</button></form>'''
    await page.route("http://evil.test/", lambda route: route.fulfill(body=form, content_type="text/html"))
    await page.goto("http://evil.test/")
    await page.get_by_role("button", name="Win").click()
    await expect(page.get_by_role("alert")).to_contain_text("Another site sent this form.")
    assert await page.context.cookies() == []


async def test_signing_out_ends_the_session_itself(visitor: Visitor) -> None:
    await visitor.go()
    cookies = await visitor.page.context.cookies()
    await visitor.page.get_by_role("button", name="Sign out").click()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    (session,) = [cookie for cookie in cookies if cookie["name"].startswith("session-")]
    old_cookie = {"name": session["name"], "value": session["value"], "url": visitor.api.base_url}
    await visitor.page.context.add_cookies([old_cookie])  # type: ignore[list-item]
    await visitor.go()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_a_session_of_one_tenant_opens_no_page_of_another(
    open_page: Open, tenant: Api, other_tenant: Api
) -> None:
    visitor = await start_session(await open_page(), tenant)
    await visitor.page.goto(f"{other_tenant.base_url}/dashboard")
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_a_page_continues_in_a_session_from_another_window(visitor: Visitor) -> None:
    await visitor.go("/users")
    page = visitor.page
    await page.context.clear_cookies()
    await sign_in(await page.context.new_page(), visitor.api)
    await page.get_by_role("button", name="Add user").click()
    await page.get_by_label("Username").fill("anna")
    await page.get_by_label("Password", exact=True).fill("a password of hers")
    await page.locator("form").get_by_role("button", name="Add user").click()
    await expect(page.get_by_role("rowheader", name="anna")).to_be_visible()


async def test_an_older_window_signs_out_of_a_session_from_another_window(visitor: Visitor) -> None:
    await visitor.go()
    other = await visitor.page.context.new_page()
    await visitor.page.context.clear_cookies()
    await sign_in(other, visitor.api)
    token = await other.locator("[name=csrf_token]").input_value()
    await expect(visitor.page.locator("[name=csrf_token]")).to_have_value(token)
    await visitor.page.get_by_role("button", name="Sign out").click()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    await other.reload()
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(("locale", "heading"), [("de-AT", "Anmelden"), ("fr-FR", "Sign in")])
async def test_the_pages_use_the_language_of_the_browser(
    open_page: Open, tenant: Api, locale: str, heading: str
) -> None:
    page = await open_page(locale=locale)
    await page.goto(f"{tenant.base_url}/dashboard")
    await expect(page.get_by_role("heading", name=heading)).to_be_visible()


async def test_another_language_can_be_chosen(visitor: Visitor) -> None:
    await visitor.go()
    await visitor.page.get_by_role("link", name="Deutsch").click()
    await expect(visitor.page.get_by_role("heading", name="Übersicht")).to_be_visible()
