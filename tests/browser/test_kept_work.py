"""Typed values survive the end of a session and a wrong click; operations can be undone; the search finds by keys."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.support.browser.accessibility import severe_findings
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.publishing import add_package
from tests.support.system.services import PASSWORD, Api

pytestmark = pytest.mark.full


@pytest.fixture
async def editor(visitor: Visitor) -> Page:
    """The page of a package, with a changed publisher in its form."""
    await add_package(visitor.api, "Acme.Anvil", package_name="Anvil")
    await visitor.go("/packages/Acme.Anvil")
    page = visitor.page
    await page.evaluate("document.querySelectorAll('main details').forEach(details => (details.open = true))")
    await page.get_by_label("Publisher").fill("Wile E.")
    return page


async def test_a_form_is_saved_after_a_sign_in_over_it(visitor: Visitor, editor: Page) -> None:
    await editor.context.clear_cookies()
    await editor.get_by_role("button", name="Save").click()
    dialog = editor.get_by_role("dialog", name="Your session has ended")
    assert await severe_findings(editor) == []
    await dialog.get_by_label("Password").fill("wrong")
    await editor.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("The username or the password is wrong.")
    await dialog.get_by_label("Password").fill(PASSWORD)
    await editor.keyboard.press("Enter")
    await expect(editor.get_by_text("Saved")).to_be_visible()
    (package,) = (await visitor.api.call("POST", "get_packages")).body
    assert package["PACKAGE_PUBLISHER"] == "Wile E."


async def test_a_link_asks_before_typed_values_are_lost(editor: Page) -> None:
    dialog = editor.get_by_role("dialog", name="Leave without saving?")
    await editor.get_by_role("link", name="Overview").click()
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(editor.get_by_label("Publisher")).to_have_value("Wile E.")
    await editor.get_by_role("link", name="Overview").click()
    await dialog.get_by_role("button", name="Leave").click()
    await expect(editor.get_by_role("heading", name="Overview")).to_be_visible()


async def test_a_page_tells_that_it_is_offline(visitor: Visitor) -> None:
    await visitor.go()
    line = visitor.page.get_by_text("You are offline.")
    await visitor.page.context.set_offline(True)
    await expect(line).to_be_visible()
    await visitor.page.context.set_offline(False)
    await expect(line).to_be_hidden()


async def test_the_message_after_a_switch_undoes_it(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Anvil", package_name="Anvil")
    await visitor.go("/packages")
    switch = visitor.page.get_by_role("switch", name="Anvil is active")
    before = await switch.is_checked()
    await switch.click()
    await visitor.page.get_by_role("button", name="Undo").click()
    await expect(visitor.page.locator("#done.shown")).to_have_text("Saved")  # The undoing; it has no button.
    await expect(switch).to_be_checked(checked=before)
    (package,) = (await visitor.api.call("POST", "get_packages")).body
    assert package["PACKAGE_ACTIVE"] == ("1" if before else "0")


async def test_the_search_opens_a_package_by_keys_alone(open_page: Open, tenant: Api) -> None:
    for package_id in ("Acme.Anvil", "Acme.Trap"):
        await add_package(tenant, package_id, package_name=package_id)
    visitor = await start_session(await open_page(), tenant)
    page, keys = visitor.page, visitor.page.keyboard
    await visitor.go("/clients")
    await keys.press("Control+K")
    await expect(page.get_by_role("combobox", name="Search packages")).to_be_focused()
    await keys.type("acme")
    options = page.get_by_role("option").filter(has_text="Acme.")
    await expect(options).to_have_count(2)
    assert await severe_findings(page) == []
    await keys.press("ArrowDown")
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Acme.Trap", level=1)).to_be_visible()
