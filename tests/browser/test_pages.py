"""What holds of every page: anyone can use it, in either light and on any screen, and it runs no one's text."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from gateway.dashboard.table import PAGES
from gateway.dashboard.visits import Visit
from tests.browser.conftest import Open
from tests.support.browser.visitors import Visitor, sign_in
from tests.support.whole.estate import Estate, furnish
from tests.support.whole.services import PASSWORD, Api, Services
from tests.support.whole.stories import add_package
from tests.system.gateway.dashboard.test_documentation import SCRIPT

AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
GRAVE = {"serious", "critical"}
NARROW = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
async def estate(services: Services) -> Estate:
    """A tenant that has one of everything, with markup in every text that may have it."""
    estate = await furnish(await services.tenant())
    api, package = estate.api, estate.parts["package_id"]
    texts = dict.fromkeys(("package_name", "package_publisher", "package_description"), SCRIPT)
    assert (await api.call("PATCH", "edit_package", package, data=texts)).status == 200
    assert (await api.call("POST", "add_blacklist_group", data={"name": SCRIPT, "package_ids": "A.B"})).status == 201
    version = {**estate.form, "package_version": "6.6", "channel": SCRIPT[:64], "switch_Silent": SCRIPT}
    await api.call("POST", "add_package_version", package, data=version)
    return estate


@pytest.fixture
async def visitor(open_page: Open, estate: Estate) -> Visitor:
    return await sign_in(await open_page(), estate.api)


def address(path: str, estate: Estate) -> str:
    """Where a row of the table is for what the tenant has."""
    return f"/{path.format(**estate.parts)}".rstrip("/")


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_anyone_can_use_a_page_in_either_light_and_on_a_narrow_screen(
    visitor: Visitor, estate: Estate, path: str
) -> None:
    await visitor.go(address(path, estate))
    page = visitor.page
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert await findings(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await findings(page) == []
    await page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    assert await findings(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await page.locator(".table:not([role=region][aria-label][tabindex='0'])").count() == 0


async def test_anyone_can_sign_in(open_page: Open, estate: Estate) -> None:
    page = await open_page(viewport=NARROW)
    await page.goto(f"{estate.api.base_url}/sign_in")
    assert await findings(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await findings(page) == []


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_what_tenants_write_is_text_on_every_page(visitor: Visitor, estate: Estate, path: str) -> None:
    await visitor.go(address(path, estate))
    assert await visitor.page.locator("img[onerror], img[src=x], main script").count() == 0


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_a_page_can_be_read_without_scripts(open_page: Open, estate: Estate, path: str) -> None:
    visitor = await sign_in(await open_page(java_script_enabled=False), estate.api)
    await visitor.go(address(path, estate))
    await expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_a_page_is_light_at_the_first_visit(visitor: Visitor, estate: Estate, path: str) -> None:
    page = await visitor.page.context.new_page()
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    await page.goto(f"{estate.api.base_url}/dashboard{address(path, estate)}")
    await page.wait_for_load_state("load")
    assert sum(sizes) <= 100_000


async def findings(page: Page) -> list[str]:
    """What axe finds that keeps people out."""
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run()")
    return [
        f"{finding['id']}: {node['html']} {node['failureSummary']}"
        for finding in found["violations"]
        if finding["impact"] in GRAVE
        for node in finding["nodes"]
    ]


async def test_a_chosen_light_stays(open_page: Open, tenant: Api) -> None:
    visitor = await sign_in(await open_page(color_scheme="light"), tenant)
    page = visitor.page
    switch = page.get_by_role("button", name="Colours: system")
    await switch.click()
    await page.get_by_role("button", name="Colours: light").click()
    await visitor.go()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_session_that_ends_soon_says_so_and_one_that_has_ended_leads_back(visitor: Visitor) -> None:
    page = visitor.page
    await page.clock.install(time="2040-01-01")  # A browser's clock may be a wrong one.
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


async def test_a_session_that_nobody_uses_says_so_before_it_ends_and_any_window_keeps_it(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Visit, "idle", 600)
    page, other = visitor.page, await visitor.page.context.new_page()
    warning, shown = page.locator("#session-ends"), "08:00"
    await page.clock.install()
    await visitor.go("/users")
    await page.clock.fast_forward(shown)
    await warning.get_by_role("button", name="Stay signed in").click()
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward("06:00")
    await other.goto(f"{visitor.api.base_url}/dashboard")
    await page.clock.fast_forward("06:00")
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward(shown)
    await expect(warning).to_be_visible()
    assert await findings(page) == []
    await page.get_by_role("link", name="Overview").click()
    await expect(warning).to_be_hidden()
    await page.clock.fast_forward("11:00")
    await expect(warning.get_by_role("link", name="Sign in again")).to_be_visible()


async def test_a_package_is_found_and_deleted_with_keys_alone(open_page: Open, tenant: Api) -> None:
    for package_id in ("Acme.Anvil", "Acme.Trap"):
        await add_package(tenant, package_id, package_name=package_id)
    page = await open_page()
    keys, found = page.keyboard, page.locator("tbody th a")
    await page.goto(f"{tenant.base_url}/dashboard")
    await keys.type("admin")
    await tab_to(page.get_by_label("Password"))
    await keys.type(PASSWORD)
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await tab_to(page.get_by_role("link", name="Packages", exact=True))
    await keys.press("Enter")
    await expect(found).to_have_count(2)
    await tab_to(page.get_by_role("searchbox"))
    await keys.type("anvil")
    await expect(found).to_have_count(1)
    await tab_to(found)
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Acme.Anvil", level=1)).to_be_visible()
    await tab_to(page.get_by_role("link", name="Skip to the content"))
    await keys.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    delete, dialog = page.get_by_role("button", name="Delete the package"), page.get_by_role("dialog")
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
    await expect(found).to_have_count(1)
    assert [package["PACKAGE_ID"] for package in (await tenant.call("POST", "get_packages")).body] == ["Acme.Trap"]


async def tab_to(element: Locator) -> None:
    """Press the tabulator until an element has the focus."""
    for _ in range(60):
        await element.page.keyboard.press("Tab")
        if await element.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("The keyboard does not lead there.")
