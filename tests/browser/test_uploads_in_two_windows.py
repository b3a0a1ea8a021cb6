"""Two windows of one browser upload the same file: a cancellation in one window ends both uploads."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support.browser.administrators import Visitor
from tests.support.browser.uploads import (
    CHUNK,
    HeldChunk,
    expect_uploaded,
    hold_chunk,
    interrupt_after,
    select_files,
    upload_row,
)

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("small_chunks")]


@pytest.fixture
async def other(visitor: Visitor) -> Visitor:
    """A second window of the visitor's browser."""
    return Visitor(await visitor.page.context.new_page(), visitor.api)


async def upload_until(visitor: Visitor, installer: Path, start: int) -> HeldChunk:
    """Upload a file until the network holds the chunk that starts at this byte."""
    await visitor.go("/publish")
    held = await hold_chunk(visitor.page, start)
    await select_files(visitor.page, installer)
    await held.sent.wait()
    return held


async def cancel(visitor: Visitor, installer: Path) -> None:
    await visitor.go("/publish")
    upload = upload_row(visitor.page, installer.name)
    await upload.get_by_role("button", name="Cancel").click()
    await expect(upload).to_have_count(0)


async def assert_cancelled(page: Page, visitor: Visitor, installer: Path) -> None:
    """The page shows the cancellation, and the repository has no part of the file."""
    await expect(upload_row(page, installer.name)).to_contain_text("Cancelled in another window.")
    assert (await visitor.api.call("GET", "server_information")).body["storage_reserved"] == 0
    assert (await visitor.api.call("GET", "get_finished_uploads")).body == []


@pytest.mark.parametrize("start", [0, 2 * CHUNK], ids=["first chunk", "third chunk"])
async def test_cancelling_in_another_window_ends_an_active_upload(
    visitor: Visitor, other: Visitor, installer: Path, start: int
) -> None:
    held = await upload_until(visitor, installer, start)
    await cancel(other, installer)
    held.release.set()
    await assert_cancelled(visitor.page, visitor, installer)


async def test_cancelling_in_another_window_ends_an_interrupted_upload(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    await visitor.go("/publish")
    restored = await interrupt_after(visitor.page, 2)
    await select_files(visitor.page, installer)
    await expect(upload_row(visitor.page, installer.name)).to_contain_text("Next attempt in")
    await cancel(other, installer)
    restored.set()
    await assert_cancelled(visitor.page, visitor, installer)


async def test_the_cancelling_window_can_upload_the_file_again(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    held = await upload_until(visitor, installer, 2 * CHUNK)
    await cancel(other, installer)
    await select_files(other.page, installer)
    await expect_uploaded(other, installer)
    held.release.set()


async def test_the_other_window_can_upload_a_cancelled_file_again(
    visitor: Visitor, other: Visitor, installer: Path
) -> None:
    held = await upload_until(visitor, installer, 2 * CHUNK)
    await cancel(other, installer)
    held.release.set()
    upload = upload_row(visitor.page, installer.name)
    await expect(upload).to_contain_text("Cancelled in another window.")
    await upload.get_by_role("button", name="Hide").click()
    await select_files(visitor.page, installer)
    await expect_uploaded(visitor, installer)
