"""Uploads from a page: interrupted, resumed, paused, cancelled and rejected."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session, submit_credentials
from tests.support.browser.uploads import (
    CHUNK,
    expect_uploaded,
    hold_chunk,
    interrupt_after,
    publish_row,
    select_files,
    sha256,
    upload_row,
)
from tests.support.system.services import Services
from tests.support.wait import until

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("small_chunks")]


async def start_interrupted(visitor: Visitor, installer: Path, chunks: int) -> asyncio.Event:
    """Start an upload that fails after some chunks until the returned event is set."""
    await visitor.go("/publish")
    restored = await interrupt_after(visitor.page, chunks)
    await select_files(visitor.page, installer)
    await expect(upload_row(visitor.page, installer.name)).to_contain_text("Next attempt in")
    return restored


async def test_two_of_several_files_upload_in_parallel(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    others = [installer.with_name(name) for name in ("second.exe", "third.exe")]
    for other in others:
        other.write_bytes(installer.read_bytes() + other.name.encode())
    await visitor.go("/publish")
    restored = await interrupt_after(page, 0)
    await select_files(page, installer, *others)
    for path in (installer, others[0]):
        await expect(upload_row(page, path.name)).to_contain_text("Next attempt in")
    await expect(upload_row(page, others[1].name)).to_contain_text("Queued")
    restored.set()
    for path in (installer, *others):
        await expect(publish_row(page, path.name)).to_be_visible()

    async def listed() -> bool:
        uploads = (await visitor.api.call("GET", "get_finished_uploads")).body
        return {upload["sha256"] for upload in uploads} == {sha256(path) for path in (installer, *others)}

    await until(listed)


async def test_selecting_the_file_again_after_a_reload_resumes_the_upload(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: dialog.accept())
    restored = await start_interrupted(visitor, installer, 2)
    await page.reload()
    await expect(upload_row(page, installer.name)).to_contain_text("select the same file again")
    restored.set()
    async with page.expect_request(lambda request: request.method == "POST") as first:
        await select_files(page, installer)
    assert (await first.value).headers["content-range"].startswith(f"bytes {2 * CHUNK}-")
    await expect_uploaded(visitor, installer)


async def test_an_upload_is_paused_and_cancelled_by_its_buttons(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    restored = await start_interrupted(visitor, installer, 1)
    upload = upload_row(page, installer.name)
    await upload.get_by_role("button", name="Pause").click()
    await expect(upload).to_contain_text("Paused")
    await page.get_by_role("link", name="Overview").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await upload.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#done")).to_contain_text("cannot be reached")
    await expect(upload).to_contain_text("Paused")
    restored.set()
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_have_count(0)
    assert (await visitor.api.call("GET", "server_information")).body["storage_reserved"] == 0
    await visitor.go("/publish")
    await expect(page.get_by_role("heading", name="Publish")).to_be_visible()
    await expect(upload).to_have_count(0)


async def test_a_file_selected_during_its_cancellation_is_a_new_upload(visitor: Visitor, installer: Path) -> None:
    page, finish_cancellation = visitor.page, asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "DELETE":
            await finish_cancellation.wait()
        await route.fallback()

    page.on("dialog", lambda dialog: dialog.accept())
    restored = await start_interrupted(visitor, installer, 1)
    upload = upload_row(page, installer.name)
    await page.reload()
    restored.set()
    await page.route("**/operations/upload_package_version", hold)
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_contain_text("Cancelling")
    await select_files(page, installer)
    await expect(publish_row(page, installer.name)).to_be_visible()
    await expect(upload.filter(visible=True)).to_have_count(1)
    await expect(upload.filter(visible=True)).to_contain_text("Cancelling")
    finish_cancellation.set()
    await expect(upload.filter(visible=True)).to_have_count(0)
    await expect(publish_row(page, installer.name)).to_be_visible()


async def test_a_full_storage_is_reported_beside_the_file(open_page: Open, services: Services, installer: Path) -> None:
    visitor = await start_session(await open_page(), await services.tenant(storage_quota=CHUNK))
    await visitor.go("/publish")
    await select_files(visitor.page, installer)
    await expect(upload_row(visitor.page, installer.name).get_by_role("alert")).to_have_text(
        "There is not enough storage left for this file."
    )


async def test_an_empty_file_is_rejected(visitor: Visitor, tmp_path: Path) -> None:
    empty = tmp_path / "empty$&.exe"
    empty.touch()
    await visitor.go("/publish")
    await select_files(visitor.page, empty)
    await expect(visitor.page.locator("#done")).to_contain_text(f"{empty.name} cannot be read.")
    await visitor.page.reload()
    await expect(upload_row(visitor.page, empty.name)).to_have_count(0)


async def test_a_file_changed_during_its_upload_is_not_retried(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    restored = await start_interrupted(visitor, installer, 2)
    upload = upload_row(page, installer.name)
    installer.write_bytes(b"another")
    restored.set()
    await expect(upload.get_by_role("alert")).to_contain_text("editor.exe cannot be read.")
    await expect(upload).to_contain_text("Upload failed")


async def test_an_upload_resumes_in_the_next_session(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    restored = await start_interrupted(visitor, installer, 2)
    upload = upload_row(page, installer.name)
    await page.context.clear_cookies()
    restored.set()
    await expect(upload).to_contain_text("Your session has ended.")
    async with page.expect_popup() as opened:
        await upload.get_by_role("button", name="Sign in again").click()
    other = await opened.value
    await submit_credentials(other)
    await expect_uploaded(visitor, installer)


async def test_an_upload_cancelled_in_another_window_ends_and_may_begin_again(
    visitor: Visitor, installer: Path
) -> None:
    page, other = visitor.page, replace(visitor, page=await visitor.page.context.new_page())
    await visitor.go("/publish")
    held = await hold_chunk(page, 2 * CHUNK)
    await select_files(page, installer)
    await held.sent.wait()
    await other.go("/publish")
    await upload_row(other.page, installer.name).get_by_role("button", name="Cancel").click()
    await expect(upload_row(other.page, installer.name)).to_have_count(0)
    held.release.set()
    upload = upload_row(page, installer.name)
    await expect(upload).to_contain_text("Cancelled in another window.")
    assert (await visitor.api.call("GET", "server_information")).body["storage_reserved"] == 0
    await upload.get_by_role("button", name="Hide").click()
    await select_files(page, installer)
    await expect_uploaded(visitor, installer)
