"""The browser tests of `make test`."""

from itertools import cycle
from pathlib import Path

from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.accessibility import COLOURS, severe_findings
from tests.support.browser.administrators import sign_in, start_session
from tests.support.browser.pages import page_paths
from tests.support.browser.uploads import drop_file, expect_uploaded, sha256
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.system.seed import SeedData
from tests.support.system.services import Api


async def test_every_page_is_accessible_and_escapes_texts(open_page: Open, seed_data: SeedData) -> None:
    """In one colour and then the other."""
    visitor = await start_session(await open_page(), seed_data.api)
    page, failing = visitor.page, {}
    for (path, address), colours in zip(page_paths(seed_data).items(), cycle(COLOURS), strict=False):
        await page.emulate_media(color_scheme=colours)
        await visitor.go(address)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await page.evaluate("document.querySelectorAll('main details').forEach(details => (details.open = true))")
        findings = await severe_findings(page)
        if await page.locator("img[onerror], img[src=x], main script").count():
            findings.append("The texts of a tenant are markup.")
        if findings:
            failing[path] = findings
    assert failing == {}


async def test_a_version_is_published_between_signing_in_and_out(open_page: Open, tenant: Api, tmp_path: Path) -> None:
    installer = tmp_path / "editor.msi"
    installer.write_bytes(MACHINE_MSI)
    visitor = await sign_in(await open_page(), tenant)
    page = visitor.page
    await page.get_by_role("link", name="Publish", exact=True).click()
    await drop_file(page, installer)
    await expect_uploaded(visitor, installer)
    await page.get_by_label("Package id").fill("Acme.Editor")
    await page.get_by_label("Package id").press("Tab")
    await expect(page.get_by_role("group", name="New package")).to_be_visible()
    await page.get_by_role("button", name="Publish 1").click()
    await expect(page.get_by_text("Published: Acme.Editor 1.2.3.4")).to_be_visible()
    versions = (await tenant.call("GET", "get_package_versions", "Acme.Editor")).body
    assert [version["INSTALLER_SHA256"] for version in versions] == [sha256(installer)]
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await visitor.go()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
