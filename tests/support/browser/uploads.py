"""Uploads from a page, and their interruption."""

import asyncio
import hashlib
import io
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Locator, Page, Route, expect

from tests.support.browser.administrators import Visitor
from tests.support.system.services import Api
from tests.support.wait import until

CHUNK = 64 << 10  # bytes


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def select_files(page: Page, *paths: Path) -> None:
    await page.locator("[data-file-picker]").set_input_files(paths)


async def drop_file(page: Page, path: Path) -> None:
    """Drop a file on the page, as a user does from a file manager."""
    script = """([name, bytes]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))], name));
        return transfer;
    }"""
    transfer = await page.evaluate_handle(script, [path.name, b64encode(path.read_bytes()).decode()])
    await page.dispatch_event("[data-drop]", "drop", {"dataTransfer": transfer})


def upload_row(page: Page, name: str) -> Locator:
    """The row of an upload on the page."""
    return page.get_by_role("list", name="Uploads", exact=True).get_by_role("listitem").filter(has_text=name)


def publish_row(page: Page, name: str) -> Locator:
    """The row of the publish page with the form of a file."""
    return page.locator("[data-publish-rows] > li").filter(has_text=name)


def named_row(page: Page, server_filename: str) -> Locator:
    """The same row by the name that the server has given the file."""
    return page.locator(f'[data-publish-rows] > [data-upload="{server_filename}"]')


async def interrupt_after(page: Page, chunks: int) -> asyncio.Event:
    """Abort requests after this number of chunks, until the returned event is set."""
    restored = asyncio.Event()
    seen: list[str] = []

    async def handle_route(route: Route) -> None:
        if route.request.method == "POST":
            seen.append(route.request.headers["content-range"])
        if len(seen) > chunks and not restored.is_set():
            await route.abort()
        else:
            await route.continue_()

    await page.route("**/operations/upload_package_version", handle_route)
    return restored


@dataclass(frozen=True)
class HeldChunk:
    """A chunk that the network holds. `sent` is set when the page sends it; `release` forwards it."""

    sent: asyncio.Event
    release: asyncio.Event


async def hold_chunk(page: Page, start: int) -> HeldChunk:
    """Hold the chunk that starts at this byte."""
    held = HeldChunk(asyncio.Event(), asyncio.Event())

    async def handle_route(route: Route) -> None:
        if route.request.headers.get("content-range", "").startswith(f"bytes {start}-"):
            held.sent.set()
            await held.release.wait()
        await route.continue_()

    await page.route("**/operations/upload_package_version", handle_route)
    return held


async def upload_by_api(api: Api, file_id: str, content: bytes) -> str:
    """Upload a file by the interface; returns its `server_filename`."""
    headers = {"X-File-ID": file_id, "Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"}
    answer = await api.call("POST", "upload_package_version", headers=headers, data={"chunk": io.BytesIO(content)})
    return str(answer.body["server_filename"])


async def expect_uploaded(visitor: Visitor, path: Path) -> None:
    """Wait until a file is uploaded unchanged, and its row is on the publish page."""
    await expect(visitor.page.locator("[data-publish-rows] > li").first).to_be_visible()

    async def listed() -> bool:
        uploads = (await visitor.api.call("GET", "get_finished_uploads")).body
        name = await visitor.page.locator("[data-publish-rows] > li").first.get_attribute("data-upload")
        return (name, sha256(path)) in [(upload["server_filename"], upload["sha256"]) for upload in uploads]

    await until(listed)
