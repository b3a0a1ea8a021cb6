"""Two windows of one browser that send the same file: a cancellation in one of them ends the upload in both."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support.browser.sending import CHUNK, HeldChunk, arrived, break_off_after, choose, hold_chunk, row
from tests.support.browser.visitors import Visitor

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("small_chunks")]


@pytest.fixture
async def other(visitor: Visitor) -> Visitor:
    """A second window of the visitor's browser."""
    return Visitor(await visitor.page.context.new_page(), visitor.api)


async def sending(visitor: Visitor, installer: Path, start: int) -> HeldChunk:
    """Send a file from a window until the network holds the chunk that begins with this byte."""
    await visitor.go("/publish")
    held = await hold_chunk(visitor.page, start)
    await choose(visitor.page, installer)
    await held.arrived.wait()
    return held


async def cancel(visitor: Visitor, installer: Path) -> None:
    await visitor.go("/publish")
    upload = row(visitor.page, installer.name)
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_have_count(0)


async def assert_cancelled(page: Page, visitor: Visitor, installer: Path) -> None:
    """The page says so, and the repository has nothing of the file."""
    await expect(row(page, installer.name)).to_contain_text("Cancelled in another window.")
    assert (await visitor.api.call("GET", "server_information")).body["storage_reserved"] == 0
    assert (await visitor.api.call("GET", "get_finished_uploads")).body == []


@pytest.mark.parametrize("start", [0, 2 * CHUNK], ids=["first chunk", "third chunk"])
async def test_cancelling_in_another_window_ends_an_active_upload(
    visitor: Visitor, other: Visitor, installer: Path, start: int
) -> None:
    held = await sending(visitor, installer, start)
    await cancel(other, installer)
    held.release.set()
    await assert_cancelled(visitor.page, visitor, installer)


async def test_cancelling_in_another_window_ends_an_interrupted_upload(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    await visitor.go("/publish")
    mended = await break_off_after(visitor.page, 2)
    await choose(visitor.page, installer)
    await expect(row(visitor.page, installer.name)).to_contain_text("Next attempt in")
    await cancel(other, installer)
    mended.set()
    await assert_cancelled(visitor.page, visitor, installer)


async def test_the_window_that_cancelled_a_file_can_send_it_again(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    held = await sending(visitor, installer, 2 * CHUNK)
    await cancel(other, installer)
    await choose(other.page, installer)
    await arrived(other, installer)
    held.release.set()


async def test_the_window_whose_file_was_cancelled_can_send_it_again(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    held = await sending(visitor, installer, 2 * CHUNK)
    await cancel(other, installer)
    held.release.set()
    upload = row(visitor.page, installer.name)
    await expect(upload).to_contain_text("Cancelled in another window.")
    await upload.get_by_role("button", name="Hide").click()
    await choose(visitor.page, installer)
    await arrived(visitor, installer)
