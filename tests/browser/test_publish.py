"""New versions of uploaded files, and notifications of uploads in other windows."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from gateway.dashboard.page_request import UNATTENDED, PageRequest
from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.browser.uploads import drop_file, expect_uploaded, select_files, sha256, upload_by_api, upload_row
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.signed_files import PUBLISHER, sign, unsigned
from tests.support.system.publishing import add_package
from tests.support.system.services import Api

pytestmark = pytest.mark.full


async def test_an_installer_becomes_the_first_version_of_a_new_package(visitor: Visitor, tmp_path: Path) -> None:
    installer = tmp_path / "editor.msi"
    installer.write_bytes(MACHINE_MSI)
    page = visitor.page
    await visitor.go("/publish")
    await drop_file(page, installer)
    await page.get_by_label("Package id").fill("Acme.Editor")
    await page.get_by_label("Package id").press("Tab")
    await expect(page.get_by_role("group", name="New package")).to_be_visible()
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Version published.")).to_be_visible()
    listed = (await visitor.api.call("GET", "get_package_versions", "Acme.Editor")).body
    assert [version["INSTALLER_SHA256"] for version in listed] == [sha256(installer)]


async def test_an_invalid_field_is_reported_beside_it(visitor: Visitor) -> None:
    package = {"package_id": "Acme.Editor", "package_name": "Editor", "package_publisher": "Acme"}
    await visitor.api.call("POST", "add_package", data=package)
    name = await upload_by_api(visitor.api, "a-file", MACHINE_MSI)
    page = visitor.page
    await visitor.go(f"/publish/{name}?package=Acme.Editor")
    await page.get_by_label("Product code").fill("no code")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_label("Product code")).to_have_accessible_error_message(re.compile("must be a GUID"))
    await expect(page.get_by_label("Product code")).to_be_focused()
    await page.get_by_label("Product code").fill("")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Version published.")).to_be_visible()


async def test_a_page_stops_polling_for_the_inspection_until_clicked(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, fetch = await upload_by_api(visitor.api, "a-file", MACHINE_MSI), PageRequest.fetch

    async def unread(page: PageRequest, operation: str, /, *values: str, **query: str) -> Any:
        answer = await fetch(page, operation, *values, **query)
        return {**answer, "state": "waiting"} if operation == "inspect_upload" else answer

    monkeypatch.setattr("gateway.dashboard.pages.packages.MAX_POLLS", 1)
    monkeypatch.setattr(PageRequest, "fetch", unread)
    page = visitor.page
    await page.route("**/publish/*polls=1*", lambda route: route.abort(), times=1)
    async with page.expect_request(lambda request: "polls=1" in request.url) as look:
        await visitor.go(f"/publish/{name}?name=editor.msi&package=Acme.Editor")
    assert UNATTENDED.lower() in (await look.value).headers
    await expect(page.get_by_text("The file is still in the queue")).to_be_visible()
    monkeypatch.setattr(PageRequest, "fetch", fetch)
    await page.get_by_role("link", name="Check again").click()
    await expect(page.get_by_label("Package id")).to_have_value("Acme.Editor")
    await expect(page.get_by_text("editor.msi")).to_be_visible()


async def test_the_form_says_who_signed_the_file(visitor: Visitor) -> None:
    page = visitor.page
    unsigned_name = await upload_by_api(visitor.api, "unsigned", unsigned("msi"))
    await visitor.go(f"/publish/{unsigned_name}")
    await expect(page.get_by_text("This file is not signed.")).to_be_visible()
    signed_name = await upload_by_api(visitor.api, "signed", sign(unsigned("msi")))
    await visitor.go(f"/publish/{signed_name}")
    await expect(page.get_by_text("The signature leads to no certificate that this server trusts.")).to_be_visible()
    await expect(page.get_by_text(f"Signer: {PUBLISHER}")).to_be_visible()


async def test_the_form_suggests_packages_with_the_typed_text(visitor: Visitor) -> None:
    for package_id in ("Acme.Editor", "Acme.Viewer"):
        package = {"package_id": package_id, "package_name": package_id, "package_publisher": "Acme"}
        await visitor.api.call("POST", "add_package", data=package)
    name = await upload_by_api(visitor.api, "a-file", MACHINE_MSI)
    await visitor.go(f"/publish/{name}")
    await visitor.page.get_by_label("Package id").fill("edit")
    offered = visitor.page.locator("#packages option")
    await expect(offered).to_have_count(1)
    await expect(offered).to_have_attribute("value", "Acme.Editor")


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
    await expect(page.get_by_role("heading", name="Version published", level=1)).to_be_visible()
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
    await expect(page.get_by_text("Version published.")).to_be_visible()


async def test_a_finished_upload_is_announced_only_to_its_own_tenant(
    open_page: Open, visitor: Visitor, other_tenant: Api
) -> None:
    colleague = await start_session(await open_page(), visitor.api)
    other = await start_session(await open_page(), other_tenant)
    for watching, path in ((visitor, ""), (colleague, "/publish"), (other, "")):
        async with watching.page.expect_response("**/dashboard/live"):
            await watching.go(path)
    async with colleague.page.expect_request("**/dashboard/publish") as renewal:
        name = await upload_by_api(visitor.api, "first", b"from elsewhere")
    assert UNATTENDED.lower() in (await renewal.value).headers
    await expect(upload_row(visitor.page, "first")).to_contain_text("Uploaded just now")
    await expect(colleague.page.locator("#unassigned").get_by_text(name)).to_be_visible()
    await upload_by_api(other_tenant, "second", b"the other's own")
    await expect(upload_row(other.page, "second")).to_be_visible()
    await expect(upload_row(other.page, "first")).to_have_count(0)
    await expect(upload_row(visitor.page, "second")).to_have_count(0)


async def test_other_users_see_the_name_of_an_upload(open_page: Open, visitor: Visitor, tmp_path: Path) -> None:
    colleague = await start_session(await open_page(), visitor.api)
    async with colleague.page.expect_response("**/dashboard/live"):
        await colleague.go("")
    installer = tmp_path / "Öl & Gas (x64).msi"
    installer.write_bytes(MACHINE_MSI)
    await visitor.go("/publish")
    await select_files(visitor.page, installer)
    await expect_uploaded(visitor, installer)
    upload = upload_row(colleague.page, "Ol-Gas-x64-.msi")
    await expect(upload).to_contain_text("Uploaded just now")
    await colleague.go("/publish")
    await colleague.page.get_by_role("button", name="Create version").click()
    await expect(colleague.page.get_by_text("Ol-Gas-x64-.msi")).to_be_visible()
