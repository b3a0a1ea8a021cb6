"""All pages are accessible in both colours and small on a phone. Sessions and colours of open pages."""

import re
from itertools import cycle

import pytest
from playwright.async_api import Locator, expect

from gateway.dashboard.page_request import PageRequest
from tests.browser.conftest import Open
from tests.support.browser.accessibility import COLOURS, CONTRAST, findings_at, layout_findings, severe_findings
from tests.support.browser.administrators import Visitor, start_session
from tests.support.browser.pages import page_paths, record_transfers
from tests.support.system.publishing import add_package
from tests.support.system.releases import add_releases
from tests.support.system.seed import SeedData
from tests.support.system.services import PASSWORD, Api

pytestmark = pytest.mark.full
WIDE, NARROW = {"width": 1280, "height": 720}, {"width": 390, "height": 740}
WIDTHS = (768, 1440, 1920)  # px
# Each section of these pages has its own form.
SEVERAL_FORMS = {"settings", "blacklist", "publish", "publish/{server_filename}"}
# The visible buttons that look like a new one.
PRIMARY = """() => {
  const colour = (element) => getComputedStyle(element).backgroundColor;
  const added = document.body.appendChild(document.createElement("button"));
  const blue = colour(added);
  added.remove();
  const buttons = [...document.querySelectorAll("main :is(button, [role=button])")];
  return buttons.filter((each) => each.checkVisibility() && colour(each) === blue).map((each) => each.textContent);
}"""
MAX_FIRST_VISIT = 100_000  # bytes


async def test_every_page_is_accessible_at_four_widths_and_small(open_page: Open, seed_data: SeedData) -> None:
    """In German, whose words are longer. `test_smoke` has the wide pages, each in the other colour."""
    visitor = await start_session(await open_page(locale="de", viewport=NARROW), seed_data.api)
    page = visitor.page
    transfers = await record_transfers(page)
    failing: dict[str, list[str]] = {}
    for (path, address), colours in zip(page_paths(seed_data).items(), cycle(reversed(COLOURS)), strict=False):
        await page.set_viewport_size(NARROW)  # type: ignore[arg-type]
        await page.emulate_media(color_scheme=colours)
        transfers.clear()
        await visitor.go(address)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        findings = [] if 0 < sum(transfers) <= MAX_FIRST_VISIT else [f"It has {sum(transfers)} bytes."]
        await page.evaluate("document.querySelectorAll('main details').forEach(details => (details.open = true))")
        findings += [*await severe_findings(page), *await layout_findings(page)]
        for width in WIDTHS:
            findings += await findings_at(page, width)
        failing |= {path: findings} if findings else {}
    assert failing == {}


async def test_a_page_has_at_most_one_primary_button(open_page: Open, seed_data: SeedData) -> None:
    await add_releases(seed_data.api, seed_data.parts["package_id"])
    visitor = await start_session(await open_page(), seed_data.api)
    failing: dict[str, list[str]] = {}
    for path, address in page_paths(seed_data).items():
        if path in SEVERAL_FORMS:
            continue
        await visitor.go(address)
        await visitor.page.evaluate(
            "document.querySelectorAll('main details').forEach(details => (details.open = true))"
        )
        buttons = await visitor.page.evaluate(PRIMARY)
        failing |= {path: buttons} if len(buttons) > 1 else {}
    assert failing == {}


async def test_the_menu_and_the_sign_in_page_are_accessible_in_both_colours(open_page: Open, tenant: Api) -> None:
    page = await open_page(viewport=NARROW)
    await page.goto(f"{tenant.base_url}/sign_in")
    findings = await severe_findings(page)
    await page.emulate_media(color_scheme="dark")
    findings += await severe_findings(page, CONTRAST)
    visitor = await start_session(page, tenant)
    await visitor.go()
    await page.get_by_role("button", name="Menu").click()
    findings += await severe_findings(page)
    await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    findings += await severe_findings(page, CONTRAST)
    await page.emulate_media(color_scheme="light")
    assert findings + await severe_findings(page, CONTRAST) == []


async def test_a_chosen_colour_scheme_stays(open_page: Open, tenant: Api) -> None:
    visitor = await start_session(await open_page(color_scheme="light"), tenant)
    page = visitor.page
    await visitor.go()
    switch = page.get_by_role("button", name="Colours: system")
    await switch.click()
    await page.get_by_role("button", name="Colours: light").click()
    await visitor.go()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_page_warns_before_its_session_ends(visitor: Visitor) -> None:
    page = visitor.page
    await page.clock.install(time="2040-01-01")  # The clock of a browser may be wrong.
    await visitor.go()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(page.get_by_role("alert")).to_be_hidden()
    await page.clock.fast_forward("56:00")
    await expect(page.locator("#session-ends")).to_be_visible()
    await expect(page.locator("#session-ends").get_by_role("link", name="Sign in again")).to_be_visible()
    await page.context.clear_cookies()
    await page.get_by_role("link", name="Overview").click()
    await expect(page).to_have_url(re.compile(r"/sign_in\?next="))
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_any_window_renews_an_idle_session_after_the_warning(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageRequest, "idle_timeout", 600)
    page, other = visitor.page, await visitor.page.context.new_page()
    warning, warning_time = page.locator("#session-ends"), "08:00"
    await page.clock.install()
    await visitor.go("/users")
    await page.clock.fast_forward(warning_time)
    await warning.get_by_role("button", name="Stay signed in").click()
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward("06:00")
    await other.goto(f"{visitor.api.base_url}/dashboard")
    await page.clock.fast_forward("06:00")
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward(warning_time)
    await expect(warning).to_be_visible()
    assert await severe_findings(page) == []
    await page.get_by_role("link", name="Overview").click()
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward("11:00")
    await expect(warning.get_by_role("link", name="Sign in again")).to_be_visible()


async def test_a_package_is_found_and_deleted_with_keys_alone(open_page: Open, tenant: Api) -> None:
    for package_id in ("Acme.Anvil", "Acme.Trap"):
        await add_package(tenant, package_id, package_name=package_id)
    page = await open_page()
    keys, links = page.keyboard, page.locator("tbody th a")
    await page.goto(f"{tenant.base_url}/dashboard")
    await expect(page.get_by_label("Username")).to_be_focused()
    await keys.type("admin")
    await tab_to(page.get_by_label("Password"))
    await keys.type(PASSWORD)
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await tab_to(page.get_by_role("link", name="Packages", exact=True))
    await keys.press("Enter")
    await expect(links).to_have_count(2)
    await tab_to(page.get_by_role("searchbox"))
    await keys.type("anvil")
    await expect(links).to_have_count(1)
    await tab_to(links)
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Acme.Anvil", level=1)).to_be_visible()
    await tab_to(page.get_by_role("link", name="Skip to content"))
    await keys.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    delete, dialog = page.get_by_role("button", name="Delete package"), page.get_by_role("dialog")
    await tab_to(delete)
    await keys.press("Enter")
    await expect(dialog.get_by_role("textbox")).to_be_focused()
    await keys.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(delete).to_be_focused()
    await keys.press("Enter")
    await keys.type("Acme.Anvil")
    await tab_to(dialog.get_by_role("button", name="Delete"))
    await keys.press("Enter")
    await expect(links).to_have_count(1)
    assert [package["PACKAGE_ID"] for package in (await tenant.call("POST", "get_packages")).body] == ["Acme.Trap"]


async def tab_to(element: Locator) -> None:
    """Press the tabulator until an element has the focus."""
    for _ in range(60):
        await element.page.keyboard.press("Tab")
        if await element.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("The tabulator does not reach the element.")
