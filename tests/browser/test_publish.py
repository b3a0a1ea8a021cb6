"""Files from a browser to versions: sent in chunks, broken off and gone on with, and told of to everyone there."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route, expect

from gateway.dashboard.visits import UNATTENDED, Visit
from tests.browser.conftest import Open
from tests.browser.sending import break_off_after, choose, drop, finish, row, sha256
from tests.browser.visitors import Visitor, sign_in
from tests.samples import MACHINE_MSI
from tests.system.services import PASSWORD, Api, Services
from tests.waiting import until

CHUNK = 64 << 10


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Visit, "chunk_size", CHUNK)


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """A file of several chunks, the last of them shorter."""
    path = tmp_path / "editor.exe"
    path.write_bytes(b"".join(number.to_bytes(4) for number in range(5 * CHUNK // 4 + 5)))
    return path


async def test_an_installer_becomes_the_first_version_of_a_new_package(visitor: Visitor, tmp_path: Path) -> None:
    installer = tmp_path / "editor.msi"
    installer.write_bytes(MACHINE_MSI)
    page = visitor.page
    await visitor.go("/publish")
    await drop(page, installer)
    await page.get_by_label("Package id").fill("Acme.Editor")
    await page.get_by_label("Package id").press("Tab")
    await expect(page.get_by_role("group", name="This package is new")).to_be_visible()
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("The version is published.")).to_be_visible()
    listed = (await visitor.api.call("GET", "get_package_versions", "Acme.Editor")).body
    assert [version["INSTALLER_SHA256"] for version in listed] == [sha256(installer)]


async def arrived(visitor: Visitor, path: Path) -> None:
    """Wait until a file is there as it was chosen."""
    await expect(visitor.page.get_by_role("heading", name="Make a version")).to_be_visible()
    name = visitor.page.url.rpartition("/")[2].partition("?")[0]

    async def listed() -> bool:
        uploads = (await visitor.api.call("GET", "get_finished_uploads")).body
        return (name, sha256(path)) in [(upload["server_filename"], upload["sha256"]) for upload in uploads]

    await until(listed)


async def test_what_is_wrong_with_a_field_is_said_beside_it(visitor: Visitor) -> None:
    package = {"package_id": "Acme.Editor", "package_name": "Editor", "package_publisher": "Acme"}
    await visitor.api.call("POST", "add_package", data=package)
    name = await finish(visitor.api, "a-file", MACHINE_MSI)
    page = visitor.page
    await visitor.go(f"/publish/{name}?package=Acme.Editor")
    await page.get_by_label("Product code").fill("no code")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_label("Product code")).to_have_accessible_error_message(re.compile("must be a GUID"))
    await expect(page.get_by_label("Product code")).to_be_focused()
    await page.get_by_label("Product code").fill("")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("The version is published.")).to_be_visible()


async def test_a_page_waits_so_long_for_a_file_to_be_read_and_then_looks_again_when_it_is_told_to(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, ask = await finish(visitor.api, "a-file", MACHINE_MSI), Visit.ask

    async def unread(visit: Visit, operation: str, /, *values: str, **query: str) -> Any:
        answer = await ask(visit, operation, *values, **query)
        return {**answer, "state": "waiting"} if operation == "inspect_upload" else answer

    monkeypatch.setattr("gateway.dashboard.publishing.LOOKS", 1)
    monkeypatch.setattr(Visit, "ask", unread)
    page = visitor.page
    await page.route("**/publish/*looks=1*", lambda route: route.abort(), times=1)
    async with page.expect_request(lambda request: "looks=1" in request.url) as look:
        await visitor.go(f"/publish/{name}?name=editor.msi&package=Acme.Editor")
    assert UNATTENDED.lower() in (await look.value).headers
    await expect(page.get_by_text("The file has not been read yet")).to_be_visible()
    monkeypatch.setattr(Visit, "ask", ask)
    await page.get_by_role("link", name="Look again").click()
    await expect(page.get_by_label("Package id")).to_have_value("Acme.Editor")
    await expect(page.get_by_text("editor.msi")).to_be_visible()


async def test_packages_that_have_what_is_typed_are_offered(visitor: Visitor) -> None:
    for package_id in ("Acme.Editor", "Acme.Viewer"):
        package = {"package_id": package_id, "package_name": package_id, "package_publisher": "Acme"}
        await visitor.api.call("POST", "add_package", data=package)
    name = await finish(visitor.api, "a-file", MACHINE_MSI)
    await visitor.go(f"/publish/{name}")
    await visitor.page.get_by_label("Package id").fill("edit")
    offered = visitor.page.locator("#packages option")
    await expect(offered).to_have_count(1)
    await expect(offered).to_have_attribute("value", "Acme.Editor")


async def test_of_several_files_two_are_sent_at_once(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    others = [installer.with_name(name) for name in ("second.exe", "third.exe")]
    for other in others:
        other.write_bytes(installer.read_bytes() + other.name.encode())
    await visitor.go("/publish")
    mended = await break_off_after(page, 0)
    await choose(page, installer, *others)
    for path in (installer, others[0]):
        await expect(row(page, path.name)).to_contain_text("Tried again in")
    await expect(row(page, others[1].name)).to_contain_text("Waits for its turn")
    mended.set()
    for path in (installer, *others):
        await expect(row(page, path.name)).to_contain_text("Is there")

    async def listed() -> bool:
        uploads = (await visitor.api.call("GET", "get_finished_uploads")).body
        return {upload["sha256"] for upload in uploads} == {sha256(path) for path in (installer, *others)}

    await until(listed)


async def test_an_upload_that_breaks_off_goes_on_by_itself_where_it_was(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    await visitor.go("/publish")
    mended = await break_off_after(page, 2)
    await choose(page, installer)
    await expect(row(page, installer.name)).to_contain_text("Tried again in")
    mended.set()
    await arrived(visitor, installer)


async def test_an_upload_that_a_reload_ends_goes_on_when_its_file_is_chosen_again(
    visitor: Visitor, installer: Path
) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: dialog.accept())
    await visitor.go("/publish")
    mended = await break_off_after(page, 2)
    await choose(page, installer)
    await expect(row(page, installer.name)).to_contain_text("Tried again in")
    await page.reload()
    await expect(row(page, installer.name)).to_contain_text("choose the same file again")
    mended.set()
    async with page.expect_request(lambda request: request.method == "POST") as first:
        await choose(page, installer)
    assert (await first.value).headers["content-range"].startswith(f"bytes {2 * CHUNK}-")
    await arrived(visitor, installer)


async def test_an_upload_is_paused_and_cancelled_by_its_buttons(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    await visitor.go("/publish")
    mended = await break_off_after(page, 1)
    await choose(page, installer)
    upload = row(page, installer.name)
    await expect(upload).to_contain_text("Tried again in")
    await upload.get_by_role("button", name="Pause").click()
    await expect(upload).to_contain_text("Paused")
    await page.get_by_role("link", name="Overview").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await upload.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#done")).to_contain_text("cannot be reached")
    await expect(upload).to_contain_text("Paused")
    mended.set()
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_have_count(0)
    assert (await visitor.api.call("GET", "server_information")).body["storage_reserved"] == 0
    await visitor.go("/publish")
    await expect(page.get_by_role("heading", name="Publish")).to_be_visible()
    await expect(upload).to_have_count(0)


async def test_a_file_that_is_chosen_again_while_it_is_cancelled_is_another_upload(
    visitor: Visitor, installer: Path
) -> None:
    page, told = visitor.page, asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "DELETE":
            await told.wait()
        await route.fallback()

    page.on("dialog", lambda dialog: dialog.accept())
    await visitor.go("/publish")
    mended = await break_off_after(page, 1)
    await choose(page, installer)
    upload = row(page, installer.name)
    await expect(upload).to_contain_text("Tried again in")
    await page.reload()
    mended.set()
    await page.route("**/operations/upload_package_version", hold)
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_contain_text("Is being cancelled")
    await choose(page, installer)
    await expect(upload.filter(has_text="Is there")).to_be_visible()
    await expect(upload).to_have_count(2)
    told.set()
    await expect(upload).to_have_count(1)
    await expect(upload).to_contain_text("Is there")


async def test_a_full_storage_is_said_beside_the_file(open_page: Open, services: Services, installer: Path) -> None:
    visitor = await sign_in(await open_page(), await services.tenant(storage_quota=CHUNK))
    await visitor.go("/publish")
    await choose(visitor.page, installer)
    await expect(row(visitor.page, installer.name).get_by_role("alert")).to_have_text(
        "There is not enough storage left for this file."
    )


async def test_an_empty_file_is_refused_at_once_and_leaves_nothing_behind(visitor: Visitor, tmp_path: Path) -> None:
    empty = tmp_path / "empty$&.exe"
    empty.touch()
    await visitor.go("/publish")
    await choose(visitor.page, empty)
    await expect(visitor.page.locator("#done")).to_contain_text(f"Nothing can be read of {empty.name}:")
    await visitor.page.reload()
    await expect(row(visitor.page, empty.name)).to_have_count(0)


async def test_a_file_that_is_changed_while_it_is_sent_is_not_tried_again(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    await visitor.go("/publish")
    mended = await break_off_after(page, 2)
    await choose(page, installer)
    upload = row(page, installer.name)
    await expect(upload).to_contain_text("Tried again in")
    installer.write_bytes(b"another")
    mended.set()
    await expect(upload.get_by_role("alert")).to_contain_text("Nothing can be read of editor.exe")
    await expect(upload).to_contain_text("Not sent")


async def test_an_upload_whose_session_ends_goes_on_in_the_next_one(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    await visitor.go("/publish")
    mended = await break_off_after(page, 2)
    await choose(page, installer)
    upload = row(page, installer.name)
    await expect(upload).to_contain_text("Tried again in")
    await page.context.clear_cookies()
    mended.set()
    await expect(upload).to_contain_text("Your session has ended.")
    async with page.expect_popup() as opened:
        await upload.get_by_role("button", name="Sign in again").click()
    other = await opened.value
    await other.get_by_label("Username").fill("admin")
    await other.get_by_label("Password").fill(PASSWORD)
    await other.get_by_role("button", name="Sign in").click()
    await arrived(visitor, installer)


async def test_an_upload_that_is_finished_elsewhere_is_seen_as_it_comes_by_its_own_tenant_alone(
    open_page: Open, visitor: Visitor, other_tenant: Api
) -> None:
    colleague, stranger = await sign_in(await open_page(), visitor.api), await sign_in(await open_page(), other_tenant)
    for watching, path in ((visitor, ""), (colleague, "/publish"), (stranger, "")):
        async with watching.page.expect_response("**/dashboard/live"):
            await watching.go(path)
    async with colleague.page.expect_request("**/dashboard/publish") as renewal:
        name = await finish(visitor.api, "first", b"from elsewhere")
    assert UNATTENDED.lower() in (await renewal.value).headers
    await expect(row(visitor.page, "first")).to_contain_text("Was uploaded just now")
    await expect(colleague.page.locator("#arrived").get_by_text(name)).to_be_visible()
    await finish(other_tenant, "second", b"the stranger's own")
    await expect(row(stranger.page, "second")).to_be_visible()
    await expect(row(stranger.page, "first")).to_have_count(0)
    await expect(row(visitor.page, "second")).to_have_count(0)


async def test_a_file_that_waits_for_a_version_is_shown_to_everyone_by_its_own_name(
    open_page: Open, visitor: Visitor, tmp_path: Path
) -> None:
    colleague = await sign_in(await open_page(), visitor.api)
    async with colleague.page.expect_response("**/dashboard/live"):
        await colleague.go("")
    installer = tmp_path / "Öl & Gas (x64).msi"
    installer.write_bytes(MACHINE_MSI)
    await visitor.go("/publish")
    await choose(visitor.page, installer)
    await arrived(visitor, installer)
    upload = row(colleague.page, "Ol-Gas-x64-.msi")
    await expect(upload).to_contain_text("Was uploaded just now")
    await colleague.go("/publish")
    await colleague.page.get_by_role("button", name="Make a version").click()
    await expect(colleague.page.get_by_text("Ol-Gas-x64-.msi")).to_be_visible()
