"""All pages are accessible in both colours and on every screen, and escape the texts of tenants."""

import re

import pytest
from playwright.async_api import Locator, Page, expect

from gateway.dashboard.page_request import PageRequest
from tests.browser.conftest import Open
from tests.support.browser.accessibility import severe_findings
from tests.support.browser.administrators import Visitor, start_session
from tests.support.browser.pages import page_paths, transferred_bytes
from tests.support.system.publishing import add_package
from tests.support.system.seed import SeedData
from tests.support.system.services import PASSWORD, Api

pytestmark = pytest.mark.full
WIDE, NARROW = {"width": 1280, "height": 720}, {"width": 360, "height": 740}
MAX_FIRST_VISIT = 100_000  # bytes


@pytest.fixture
async def visitor(open_page: Open, seed_data: SeedData) -> Visitor:
    return await start_session(await open_page(), seed_data.api)


async def test_every_page_is_accessible_in_both_colours_and_narrow(visitor: Visitor, seed_data: SeedData) -> None:
    page = visitor.page
    failing: dict[str, list[str]] = {}
    for path, address in page_paths(seed_data).items():
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size(WIDE)  # type: ignore[arg-type]
        await visitor.go(address)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await page.evaluate("document.querySelectorAll('main details').forEach(details => (details.open = true))")
        findings = {"light": await severe_findings(page)}
        await page.emulate_media(color_scheme="dark")
        findings["dark"] = await severe_findings(page)
        await page.set_viewport_size(NARROW)  # type: ignore[arg-type]
        findings["narrow dark"] = await severe_findings(page)
        await page.emulate_media(color_scheme="light")
        findings["narrow"] = [*await severe_findings(page), *await layout_findings(page)]
        await page.get_by_role("button", name="Menu").click()
        findings["menu"] = await severe_findings(page)
        failing |= {f"{path} {view}": problems for view, problems in findings.items() if problems}
    assert failing == {}


async def layout_findings(page: Page) -> list[str]:
    """The problems of a page on a phone that axe does not find."""
    table = ".table:not([role=region][aria-label][tabindex='0'])"
    problems = {
        "The page scrolls sideways.": "document.documentElement.scrollWidth > innerWidth",
        "A table cannot be scrolled with keys.": f'document.querySelector("{table}") !== null',
        "A table is too wide.": "[...document.querySelectorAll('.table')].some(t => t.scrollWidth > t.clientWidth)",
        "The header is higher than 64 pixels.": "document.querySelector('.frame').offsetHeight > 64",
        "The current page has no name in the header.": "!document.querySelector('.frame .here').checkVisibility()",
    }
    return [problem for problem, expression in problems.items() if await page.evaluate(expression)]


async def test_the_sign_in_page_is_accessible(open_page: Open, tenant: Api) -> None:
    page = await open_page(viewport=NARROW)
    await page.goto(f"{tenant.base_url}/sign_in")
    assert await severe_findings(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await severe_findings(page) == []


async def test_every_page_escapes_the_texts_of_tenants(visitor: Visitor, seed_data: SeedData) -> None:
    failing = []
    for path, address in page_paths(seed_data).items():
        await visitor.go(address)
        if await visitor.page.locator("img[onerror], img[src=x], main script").count():
            failing.append(path)
    assert failing == []


async def test_every_page_can_be_read_without_scripts(open_page: Open, seed_data: SeedData) -> None:
    visitor = await start_session(await open_page(java_script_enabled=False), seed_data.api)
    for address in page_paths(seed_data).values():
        await visitor.go(address)
        await expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()


async def test_every_page_is_small_at_the_first_visit(visitor: Visitor, seed_data: SeedData) -> None:
    sizes = {path: await transferred_bytes(visitor, address) for path, address in page_paths(seed_data).items()}
    assert {path: size for path, size in sizes.items() if not 0 < size <= MAX_FIRST_VISIT} == {}


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
