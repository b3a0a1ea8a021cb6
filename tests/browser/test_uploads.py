"""Files on their way from a browser: broken off, gone on with, paused, cancelled and refused."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import Open
from tests.support.browser.sending import CHUNK, arrived, break_off_after, choose, row, sha256
from tests.support.browser.visitors import Visitor, start_session, submit_credentials
from tests.support.waiting import until
from tests.support.whole.services import Services

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("small_chunks")]


async def broken_off_after(visitor: Visitor, installer: Path, chunks: int) -> asyncio.Event:
    """Choose a file of which so many chunks get through, and the rest once the event is set."""
    await visitor.go("/publish")
    mended = await break_off_after(visitor.page, chunks)
    await choose(visitor.page, installer)
    await expect(row(visitor.page, installer.name)).to_contain_text("Next attempt in")
    return mended


async def test_two_of_several_files_are_sent_at_once(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    others = [installer.with_name(name) for name in ("second.exe", "third.exe")]
    for other in others:
        other.write_bytes(installer.read_bytes() + other.name.encode())
    await visitor.go("/publish")
    mended = await break_off_after(page, 0)
    await choose(page, installer, *others)
    for path in (installer, others[0]):
        await expect(row(page, path.name)).to_contain_text("Next attempt in")
    await expect(row(page, others[1].name)).to_contain_text("Queued")
    mended.set()
    for path in (installer, *others):
        await expect(row(page, path.name)).to_contain_text("Uploaded")

    async def listed() -> bool:
        uploads = (await visitor.api.call("GET", "get_finished_uploads")).body
        return {upload["sha256"] for upload in uploads} == {sha256(path) for path in (installer, *others)}

    await until(listed)


async def test_an_interrupted_upload_resumes_by_itself(visitor: Visitor, installer: Path) -> None:
    mended = await broken_off_after(visitor, installer, 2)
    mended.set()
    await arrived(visitor, installer)


async def test_after_a_reload_choosing_the_file_again_resumes_the_upload(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: dialog.accept())
    mended = await broken_off_after(visitor, installer, 2)
    await page.reload()
    await expect(row(page, installer.name)).to_contain_text("select the same file again")
    mended.set()
    async with page.expect_request(lambda request: request.method == "POST") as first:
        await choose(page, installer)
    assert (await first.value).headers["content-range"].startswith(f"bytes {2 * CHUNK}-")
    await arrived(visitor, installer)


async def test_an_upload_is_paused_and_cancelled_by_its_buttons(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    mended = await broken_off_after(visitor, installer, 1)
    upload = row(page, installer.name)
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


async def test_a_file_chosen_again_during_its_cancellation_is_a_new_upload(visitor: Visitor, installer: Path) -> None:
    page, finish_cancellation = visitor.page, asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "DELETE":
            await finish_cancellation.wait()
        await route.fallback()

    page.on("dialog", lambda dialog: dialog.accept())
    mended = await broken_off_after(visitor, installer, 1)
    upload = row(page, installer.name)
    await page.reload()
    mended.set()
    await page.route("**/operations/upload_package_version", hold)
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_contain_text("Cancelling")
    await choose(page, installer)
    await expect(upload.filter(has_text="Uploaded")).to_be_visible()
    await expect(upload).to_have_count(2)
    finish_cancellation.set()
    await expect(upload).to_have_count(1)
    await expect(upload).to_contain_text("Uploaded")


async def test_a_full_storage_is_reported_beside_the_file(open_page: Open, services: Services, installer: Path) -> None:
    visitor = await start_session(await open_page(), await services.tenant(storage_quota=CHUNK))
    await visitor.go("/publish")
    await choose(visitor.page, installer)
    await expect(row(visitor.page, installer.name).get_by_role("alert")).to_have_text(
        "There is not enough storage left for this file."
    )


async def test_an_empty_file_is_refused_and_leaves_nothing_behind(visitor: Visitor, tmp_path: Path) -> None:
    empty = tmp_path / "empty$&.exe"
    empty.touch()
    await visitor.go("/publish")
    await choose(visitor.page, empty)
    await expect(visitor.page.locator("#done")).to_contain_text(f"Nothing can be read of {empty.name}:")
    await visitor.page.reload()
    await expect(row(visitor.page, empty.name)).to_have_count(0)


async def test_a_file_changed_during_its_upload_is_not_retried(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    mended = await broken_off_after(visitor, installer, 2)
    upload = row(page, installer.name)
    installer.write_bytes(b"another")
    mended.set()
    await expect(upload.get_by_role("alert")).to_contain_text("Nothing can be read of editor.exe")
    await expect(upload).to_contain_text("Upload failed")


async def test_an_upload_resumes_in_the_next_session(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    mended = await broken_off_after(visitor, installer, 2)
    upload = row(page, installer.name)
    await page.context.clear_cookies()
    mended.set()
    await expect(upload).to_contain_text("Your session has ended.")
    async with page.expect_popup() as opened:
        await upload.get_by_role("button", name="Sign in again").click()
    other = await opened.value
    await submit_credentials(other)
    await arrived(visitor, installer)
