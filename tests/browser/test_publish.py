"""New versions of uploaded files, and notifications of uploads in other windows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import expect

from gateway.dashboard.page_request import UNATTENDED
from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.browser.uploads import (
    expect_uploaded,
    named_row,
    publish_row,
    select_files,
    upload_by_api,
    upload_row,
)
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.signed_files import unsigned
from tests.support.system.publishing import add_package, publish, upload_listed, wait_for_inspection
from tests.support.system.releases import replace_answers

pytestmark = pytest.mark.full


async def test_an_invalid_field_is_reported_beside_it(visitor: Visitor) -> None:
    package = {"package_id": "Acme.Editor", "package_name": "Editor", "package_publisher": "Acme"}
    await visitor.api.call("POST", "add_package", data=package)
    name = await upload_by_api(visitor.api, "a-file", MACHINE_MSI)
    page = visitor.page
    await visitor.go(f"/publish/{name}?package=Acme.Editor")
    await page.get_by_text("More fields").click()
    await page.get_by_label("Product code").fill("no code")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_label("Product code")).to_have_accessible_error_message(re.compile("must be a GUID"))
    await expect(page.get_by_label("Product code")).to_be_focused()
    await page.get_by_label("Product code").fill("")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Published: Acme.Editor")).to_be_visible()


async def test_a_page_stops_polling_for_the_inspection_until_clicked(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await upload_by_api(visitor.api, "a-file", MACHINE_MSI)
    inspection = (await visitor.api.call("GET", "inspect_upload", name)).body
    monkeypatch.setattr("gateway.dashboard.pages.packages.MAX_POLLS", 1)
    replace_answers(monkeypatch, inspect_upload=lambda: {**inspection, "state": "waiting"})
    page = visitor.page
    await page.route("**/publish/*polls=1*", lambda route: route.abort(), times=1)
    async with page.expect_request(lambda request: "polls=1" in request.url) as look:
        await visitor.go(f"/publish/{name}?name=editor.msi&package=Acme.Editor")
    assert UNATTENDED.lower() in (await look.value).headers
    await expect(page.get_by_text("The file is still in the queue")).to_be_visible()
    monkeypatch.undo()
    await page.get_by_role("link", name="Check again").click()
    await expect(page.get_by_label("Package id")).to_have_value("Acme.Editor")
    await expect(page.get_by_text("editor.msi")).to_be_visible()


async def test_a_version_that_winget_refuses_is_published_after_a_warning(visitor: Visitor) -> None:
    name = await upload_by_api(visitor.api, "a-file", MACHINE_MSI)
    page = visitor.page
    await visitor.go(f"/publish/{name}?package=Acme.Editor")
    await page.get_by_label("Version").fill("1/0")
    warning = "winget will not show this version: Version must not hold"
    await expect(page.get_by_role("status").filter(has_text=warning)).to_be_visible()
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_role("alert").filter(has_text=warning)).to_be_focused()
    assert (await visitor.api.call("GET", "find_packages")).body["total"] == 0
    await page.get_by_role("button", name="Publish anyway").click()
    await expect(page.locator("[data-published]").get_by_text(warning)).to_be_visible()


async def test_a_file_that_is_no_installer_needs_a_confirmation(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Editor")
    name = await upload_by_api(visitor.api, "a-file", b"no installer")
    page = visitor.page
    await visitor.go(f"/publish/{name}?package=Acme.Editor")
    await expect(page.get_by_text("This file is not recognised as an installer.")).to_be_visible()
    await page.get_by_label("Version").fill("1.0")
    await page.locator("[name=file_type]").select_option("EXE")
    await expect(page.get_by_text("Without a silent switch")).to_be_visible()
    await page.get_by_label("Silent switch").fill("/S")
    await expect(page.get_by_text("Without a silent switch")).to_be_hidden()
    await page.get_by_label("Architecture").select_option("x64")
    await expect(page.get_by_label("Scope")).to_have_value("machine")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_label("Publish this file anyway")).to_be_focused()
    await page.get_by_label("Publish this file anyway").check()
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Published: Acme.Editor")).to_be_visible()


async def test_a_finished_upload_is_announced_to_a_colleague(open_page: Open, visitor: Visitor, tmp_path: Path) -> None:
    colleague = await start_session(await open_page(), visitor.api)
    listing = replace(colleague, page=await colleague.page.context.new_page())
    for window, path in ((colleague, ""), (listing, "/publish")):
        async with window.page.expect_response("**/dashboard/live"):
            await window.go(path)
    installer = tmp_path / "Ölgröße & Gas (x64).msi"
    installer.write_bytes(MACHINE_MSI)
    await visitor.go("/publish")
    async with listing.page.expect_request("**/dashboard/publish") as renewal:
        await select_files(visitor.page, installer)
        await expect_uploaded(visitor, installer)
    assert UNATTENDED.lower() in (await renewal.value).headers
    await expect(upload_row(colleague.page, "Olgrosse-Gas-x64.msi")).to_contain_text("Uploaded just now")
    await expect(publish_row(listing.page, "Olgrosse-Gas-x64.msi").get_by_label("Version")).to_have_value("1.2.3.4")
    await expect(listing.page.get_by_role("checkbox", name="Olgrosse-Gas-x64.msi")).not_to_be_checked()
    await colleague.page.get_by_role("button", name="Create version").click()
    await expect(colleague.page.get_by_label("Version")).to_have_value("1.2.3.4")


async def test_an_upload_without_a_version_is_deleted_after_a_confirmation(visitor: Visitor) -> None:
    page, names = visitor.page, [await upload_listed(visitor.api, content) for content in (b"one", b"two")]
    await visitor.go("/publish")
    for name in names:
        await named_row(page, name).get_by_label("Version").fill("2.0")
    await expect(page.get_by_role("button", name="Publish 2")).to_be_visible()
    await named_row(page, names[0]).get_by_role("button", name="Delete").click()
    await visitor.confirm("")
    await expect(named_row(page, names[0])).to_have_count(0)
    await expect(page.get_by_role("button", name="Publish 1")).to_be_visible()
    await expect(named_row(page, names[1]).get_by_label("Version")).to_have_value("2.0")
    assert (await visitor.api.call("GET", "inspect_upload", names[0])).status == 404
    await named_row(page, names[1]).get_by_role("button", name="Delete").click()
    await visitor.confirm("")
    await expect(page.get_by_text("No unassigned uploads.")).to_be_visible()


async def test_several_files_are_published_with_one_click(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    await visitor.api.call("PATCH", "edit_settings", data={"rings": "pilot,everyone"})
    files = {"editor.msi": MACHINE_MSI, "anvil.exe": unsigned("exe"), "notes.exe": b"no installer"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    await visitor.go("/publish")
    await select_files(page, *(tmp_path / name for name in list(files)[:2]))
    anvil = publish_row(page, "anvil.exe")
    await anvil.get_by_label("Package id").fill("Acme.Anvil")
    await anvil.get_by_label("Version").fill("2.0")
    await anvil.get_by_label("Name", exact=True).fill("Anvil")
    await anvil.get_by_label("Publisher").fill("Acme")
    await select_files(page, tmp_path / "notes.exe")
    await expect(publish_row(page, "notes.exe").get_by_label("Publish this file anyway")).to_be_visible()
    await expect(anvil.get_by_label("Version")).to_have_value("2.0")
    await page.get_by_role("button", name="Publish 3").click()
    await expect(page.get_by_role("status").filter(has_text="2 published.")).to_be_visible()
    await expect(publish_row(page, "notes.exe").get_by_label("Publish this file anyway")).to_be_focused()
    await expect(anvil).to_contain_text("Published: Acme.Anvil 2.0")
    await expect(anvil.get_by_role("list", name="Rings")).to_contain_text("pilot (0 machines)")
    await expect(anvil.locator("code").filter(has_text="winget install --id Acme.Anvil")).to_be_visible()
    await anvil.get_by_role("link", name="Acme.Anvil 2.0").click()
    await expect(page.get_by_role("heading", name="Version 2.0")).to_be_visible()


async def test_an_infected_file_cannot_be_published(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    name = await upload_listed(visitor.api, MACHINE_MSI)
    await wait_for_inspection(visitor.api, name)
    inspection = (await visitor.api.call("GET", "inspect_upload", name)).body
    scan = {**inspection["scan"], "state": "infected", "reason": "Eicar"}
    replace_answers(monkeypatch, inspect_upload=lambda: {**inspection, "scan": scan})
    await visitor.go("/publish")
    await expect(named_row(visitor.page, name).get_by_text("Malware: Eicar.")).to_be_visible()
    await expect(named_row(visitor.page, name).get_by_label("Version")).to_have_count(0)


async def test_a_new_version_takes_switches_and_scope_of_the_newest_one(visitor: Visitor) -> None:
    page = visitor.page
    await add_package(visitor.api, "Acme.Anvil")
    await publish(visitor.api, "Acme.Anvil", "1.0", file_type="exe", file_scope="user", switch_Silent="/S")
    name = await upload_listed(visitor.api, unsigned("exe"))
    await wait_for_inspection(visitor.api, name)
    await visitor.go(f"/publish/{name}?package=Acme.Anvil")
    await expect(page.get_by_text("are those of version 1.0.")).to_be_visible()
    await page.get_by_label("Version", exact=True).fill("2.0")
    await page.get_by_role("button", name="Publish", exact=True).click()
    await page.get_by_role("link", name="Acme.Anvil 2.0").click()
    await expect(page.get_by_role("heading", name="Version 2.0")).to_be_visible()
    newest = (await visitor.api.call("GET", "find_versions", "Acme.Anvil", params={"limit": "1"})).body["versions"][0]
    details = (await visitor.api.call("GET", "get_version_details", newest["uid"])).body
    assert (details["switch_Silent"], details["file_scope"]) == ("/S", "user")
