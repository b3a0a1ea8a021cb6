"""The navigation, the menus of rows, and buttons that copy a text."""

from dataclasses import replace

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, sign_in, start_session
from tests.support.system.publishing import add_package, publish
from tests.support.system.services import Api

pytestmark = pytest.mark.full
PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize("scripts", [True, False])
async def test_a_phone_opens_a_page_by_the_menu_button(open_page: Open, tenant: Api, scripts: bool) -> None:
    visitor = await start_session(await open_page(viewport=PHONE, java_script_enabled=scripts), tenant)
    page, link = visitor.page, visitor.page.get_by_role("link", name="Audit log")
    await visitor.go("/clients")
    await expect(page.locator(".here")).to_have_text("Clients")
    await expect(link).to_be_hidden()
    await page.get_by_role("button", name="Menu").click()
    await link.click()
    await expect(page.get_by_role("heading", name="Audit log", level=1)).to_be_visible()
    await expect(page.locator(".here")).to_have_text("Audit log")
    await expect(link).to_be_hidden()


async def test_the_menu_of_a_row_works_with_keys_and_closes_by_a_click_elsewhere(visitor: Visitor) -> None:
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    await visitor.go("/clients")
    page, menu = visitor.page, visitor.page.get_by_role("button", name="Actions for pc-1")
    disable = page.get_by_role("button", name="Disable pc-1")
    await menu.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(disable).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(disable).to_be_hidden()
    await expect(menu).to_be_focused()
    await menu.click()
    await page.get_by_role("heading", level=1).click()
    await expect(disable).to_be_hidden()


async def copied_text(page: Page) -> str:
    """The clipboard, as a user pastes it into the search field."""
    field = page.get_by_role("searchbox").first
    await field.fill("")
    await field.press("Control+V")
    return await field.input_value()


@pytest.mark.parametrize("host", ["127.0.0.1", "packages.test"])
async def test_a_command_is_copied_over_plain_http(open_page: Open, tenant: Api, host: str) -> None:
    page = await open_page(permissions=["clipboard-read", "clipboard-write"])
    visitor = await sign_in(page, replace(tenant, base_url=tenant.base_url.replace("127.0.0.1", host)))
    await add_package(tenant, "Acme.Anvil")
    await publish(tenant, "Acme.Anvil")
    await visitor.go("/packages/Acme.Anvil")
    assert await page.evaluate("isSecureContext") is (host == "127.0.0.1")
    copy = page.get_by_role("button", name="Copy command")
    await copy.click()
    await expect(page.get_by_text("Copied")).to_be_visible()
    await expect(copy).to_be_focused()
    await visitor.go("/packages")
    assert await copied_text(page) == f"winget install --id Acme.Anvil --source {tenant.tenant_id}"
