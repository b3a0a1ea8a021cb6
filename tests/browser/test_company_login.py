"""An administrator sets up the company login on the page, tests it, and a user signs in by it."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.support.browser.accessibility import severe_findings
from tests.support.browser.administrators import Visitor
from tests.support.services.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider, identity_provider

pytestmark = pytest.mark.full


@pytest.fixture
async def idp(tmp_path: Path) -> AsyncIterator[IdentityProvider]:
    """A provider where the browser is signed in already."""
    async with identity_provider(tmp_path) as running:

        def send_back(request: web.Request) -> web.Response:
            query = urlencode(running.sign_in(str(request.url)))
            return web.Response(status=302, headers={"Location": f"{request.query['redirect_uri']}?{query}"})

        running.replies["/auth"] = send_back
        yield running


async def fill_in(page: Page, idp: IdentityProvider, secret: str) -> None:
    await page.get_by_label("Issuer").fill(idp.issuer)
    await page.get_by_label("Client id").fill(CLIENT_ID)
    await page.get_by_label("Client secret").fill(secret)
    await page.get_by_label("Claim with the roles or groups").fill("groups")
    await page.get_by_text("Button and certificate").click()
    await page.get_by_label("Certificate of the provider's authority").fill(idp.certificate)
    await page.get_by_role("button", name="Add role").click()
    await page.get_by_label("Role or group there").fill("Packagers")
    await page.get_by_label("Role here").select_option("Publisher")


async def test_an_administrator_sets_up_the_company_login(
    visitor: Visitor, open_page: Open, idp: IdentityProvider
) -> None:
    page = visitor.page
    await visitor.go("/users")
    await page.get_by_role("link", name="Set up the company login").click()
    await expect(page.get_by_text(f"{visitor.api.base_url}/sign_in/oidc/callback")).to_be_visible()
    await fill_in(page, idp, "another secret")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_role("alert").filter(has_text="refuses the client id")).to_be_visible()
    await page.get_by_label("Client secret").fill(CLIENT_SECRET)
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("The provider answers")).to_be_visible()
    await expect(page.get_by_role("alert").filter(has_text="refuses the client id")).to_have_count(0)
    assert await severe_findings(page) == []
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Company login saved.")).to_be_visible()
    await expect(page.get_by_label("Role or group there")).to_have_value("Packagers")
    await expect(page.get_by_label("Client secret")).to_have_value("")

    user = await open_page(ignore_https_errors=True)
    await user.goto(f"{visitor.api.base_url}/sign_in")
    await user.get_by_role("button", name="Sign in with Company login").click()
    await expect(user).to_have_url(f"{visitor.api.base_url}/dashboard")
    await user.goto(f"{visitor.api.base_url}/dashboard/account")
    await expect(user.locator("main")).to_contain_text("Publisher")


async def test_deleting_leaves_the_password_sign_in(visitor: Visitor, idp: IdentityProvider) -> None:
    page = visitor.page
    await visitor.go("/users/company_login")
    await fill_in(page, idp, CLIENT_SECRET)
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Delete company login").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("Company login deleted.")).to_be_visible()
    await page.goto(f"{visitor.api.base_url}/sign_in")
    await expect(page.get_by_label("Password")).to_be_visible()
    await expect(page.get_by_role("button", name="Sign in with Company login")).to_have_count(0)
