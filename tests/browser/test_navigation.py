"""The navigation, the menus of rows, and buttons that copy a text."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, sign_in, start_session
from tests.support.browser.uploads import interrupt_after, select_files, upload_row
from tests.support.system.publishing import add_package
from tests.support.system.services import Api

pytestmark = pytest.mark.full
PHONE = {"width": 390, "height": 844}
MAIN_IS_BELOW_TRAY = """() => {
    const [tray, main] = ["#uploads", "main"].map((name) => document.querySelector(name).getBoundingClientRect());
    return tray.bottom <= main.top;
}"""
GROUPS = {
    "Content": ["Packages", "Publish"],
    "Access": ["Clients", "Blacklist", "Users", "API tokens"],
    "System": ["Settings", "Status", "Audit log", "Help"],
}


async def test_the_navigation_has_three_groups_after_the_overview(visitor: Visitor) -> None:
    await visitor.go("/users")
    navigation = visitor.page.get_by_role("navigation", name="Pages")
    links = await navigation.get_by_role("link").all_inner_texts()
    assert links == ["Overview", *(name for names in GROUPS.values() for name in names)]
    for group, names in GROUPS.items():
        assert await navigation.get_by_role("list", name=group).get_by_role("link").all_inner_texts() == names
    assert await navigation.locator("[aria-current=page]").all_inner_texts() == ["Users"]


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


async def test_a_phone_shows_every_cell_of_a_table_with_its_heading(open_page: Open, tenant: Api) -> None:
    await tenant.call("POST", "add_client", data={"client_name": "pc-1"})
    visitor = await start_session(await open_page(viewport=PHONE), tenant)
    await visitor.go("/clients")
    row = visitor.page.get_by_role("row", name="pc-1")
    labels = """cell => {
        const label = getComputedStyle(cell, "::before");
        const room = parseFloat(getComputedStyle(cell).paddingLeft);
        return label.content === "none" || parseFloat(label.width) < room ? label.content : "covered";
    }"""
    texts = [await cell.evaluate(labels) for cell in await row.get_by_role("cell").all()]
    assert texts == ['"State"', '"Last seen"', '"Token"', "none"]
    for element in (*await row.get_by_role("cell").all(), row.get_by_role("button", name="Actions for pc-1")):
        await expect(element).to_be_in_viewport(ratio=1)


async def test_the_menu_of_a_row_works_with_keys_alone(visitor: Visitor) -> None:
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


async def test_a_click_elsewhere_closes_the_menu_of_a_row(visitor: Visitor) -> None:
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    await visitor.go("/clients")
    await visitor.page.get_by_role("button", name="Actions for pc-1").click()
    await expect(visitor.page.get_by_role("button", name="Delete pc-1")).to_be_visible()
    await visitor.page.get_by_role("heading", level=1).click()
    await expect(visitor.page.get_by_role("button", name="Delete pc-1")).to_be_hidden()


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
    await visitor.go("/packages/Acme.Anvil")
    assert await page.evaluate("isSecureContext") is (host == "127.0.0.1")
    copy = page.get_by_role("button", name="Copy command")
    await copy.click()
    await expect(page.get_by_text("Copied")).to_be_visible()
    await expect(copy).to_be_focused()
    await visitor.go("/packages")
    assert await copied_text(page) == f"winget install --id Acme.Anvil --source {tenant.tenant_id}"


@pytest.mark.usefixtures("small_chunks")
async def test_the_upload_tray_covers_no_row(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    for number in range(18):
        await visitor.api.call("POST", "add_client", data={"client_name": f"pc-{number}"})
    await visitor.go("/publish")
    await interrupt_after(page, 0)
    await select_files(page, installer)
    await page.get_by_role("link", name="Clients", exact=True).click()
    await expect(upload_row(page, installer.name)).to_be_visible()
    for last in (False, True):
        await page.get_by_role("row").nth(-1 if last else 1).scroll_into_view_if_needed()
        await page.wait_for_function(MAIN_IS_BELOW_TRAY)


async def test_the_api_reference_links_back_to_the_dashboard(visitor: Visitor) -> None:
    await visitor.page.goto(f"{visitor.api.base_url}/docs")
    await visitor.page.get_by_role("link", name="Back to the dashboard").click()
    await expect(visitor.page).to_have_url(f"{visitor.api.base_url}/dashboard")
