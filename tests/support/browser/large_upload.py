"""A large file from a browser, interrupted twice: by a network that goes away, and by a reload of the page.

python -m tests.support.browser.large_upload 2147483648
"""

import asyncio
import hashlib
import os
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Page, async_playwright, expect
from rich.console import Console

from tests.support.browser.visitors import Visitor, launch_browser, sign_in
from tests.support.servers.stores import private_stores
from tests.support.whole.services import all_services

BLOCK = 8 << 20  # bytes
TIMEOUT = 3_600_000  # ms
say = partial(Console().print, markup=False, highlight=False, soft_wrap=True)


async def tell(size: int) -> None:
    """Do it, and say what came of it."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        installer, sha256 = folder / "large.exe", hashlib.sha256()
        with installer.open("wb") as file:
            for start in range(0, size, BLOCK):
                block = os.urandom(min(BLOCK, size - start))
                sha256.update(block)
                file.write(block)
        say(f"the file: {size:,} bytes, SHA-256 {sha256.hexdigest()}")
        running = folder / "services"
        running.mkdir()
        async with (
            private_stores(folder / "stores") as stores,
            all_services(running, stores.mongo_url, stores.redis_url, stores.rabbitmq_url) as services,
            async_playwright() as playwright,
        ):
            browser = await launch_browser(playwright)
            visitor = await sign_in(await browser.new_page(), await services.tenant())
            began = time.monotonic()
            await _send(visitor, installer)
            say(f"sent in {time.monotonic() - began:.0f} s")
            (upload,) = (await visitor.api.call("GET", "get_finished_uploads")).body
            await browser.close()
    say(f"the repository's: {upload['size']:,} bytes, SHA-256 {upload['sha256']}")
    if upload["sha256"] != sha256.hexdigest():
        sys.exit("They differ.")


async def _send(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: dialog.accept())
    chosen = page.locator("[data-file-picker]")
    row = page.get_by_role("list", name="Uploads").get_by_role("listitem")
    await visitor.go("/publish")
    await chosen.set_input_files(installer)
    await _until(page, 0.3)
    await page.context.set_offline(True)
    await expect(row).to_contain_text("Next attempt in")
    say(f"the network goes away: {await row.inner_text()!r}")
    await page.context.set_offline(False)
    await _until(page, 0.6)
    await page.reload()
    await expect(row).to_contain_text("select the same file again")
    say(f"the page is loaded anew: {await row.inner_text()!r}")
    async with page.expect_request(lambda request: request.method == "POST") as first:
        await chosen.set_input_files(installer)
    say(f"gone on with: {(await first.value).headers['content-range']}")
    await expect(page.get_by_role("heading", name="New version")).to_be_visible(timeout=TIMEOUT)


async def _until(page: Page, part: float) -> None:
    """Wait until so much of the file is sent."""
    await page.locator(f"progress[value^='{part:.1f}']").wait_for(timeout=TIMEOUT)


if __name__ == "__main__":
    asyncio.run(tell(int(sys.argv[1])))
