"""Upload a large file from a browser, interrupted by a network failure and by a reload.

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

from tests.support.browser.administrators import Visitor, launch_browser, sign_in
from tests.support.servers.stores import private_stores
from tests.support.system.services import all_services

BLOCK = 8 << 20  # bytes
TIMEOUT = 3_600_000  # ms
report = partial(Console().print, markup=False, highlight=False, soft_wrap=True)


async def main(size: int) -> None:
    """Upload a file of this size, and report the result."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        installer, sha256 = folder / "large.exe", hashlib.sha256()
        with installer.open("wb") as file:
            for start in range(0, size, BLOCK):
                block = os.urandom(min(BLOCK, size - start))
                sha256.update(block)
                file.write(block)
        report(f"the file: {size:,} bytes, SHA-256 {sha256.hexdigest()}")
        services_folder = folder / "services"
        services_folder.mkdir()
        async with (
            private_stores(folder / "stores") as stores,
            all_services(services_folder, stores.mongo_url, stores.redis_url, stores.rabbitmq_url) as services,
            async_playwright() as playwright,
        ):
            browser = await launch_browser(playwright)
            visitor = await sign_in(await browser.new_page(), await services.tenant())
            started = time.monotonic()
            await _send(visitor, installer)
            report(f"sent in {time.monotonic() - started:.0f} s")
            (upload,) = (await visitor.api.call("GET", "get_finished_uploads")).body
            await browser.close()
    report(f"in the repository: {upload['size']:,} bytes, SHA-256 {upload['sha256']}")
    if upload["sha256"] != sha256.hexdigest():
        sys.exit("They differ.")


async def _send(visitor: Visitor, installer: Path) -> None:
    page = visitor.page
    page.on("dialog", lambda dialog: dialog.accept())
    file_input = page.locator("[data-file-picker]")
    row = page.get_by_role("list", name="Uploads").get_by_role("listitem")
    await visitor.go("/publish")
    await file_input.set_input_files(installer)
    await _wait_for_progress(page, 0.3)
    await page.context.set_offline(True)
    await expect(row).to_contain_text("Next attempt in")
    report(f"network failure: {await row.inner_text()!r}")
    await page.context.set_offline(False)
    await _wait_for_progress(page, 0.6)
    await page.reload()
    await expect(row).to_contain_text("select the same file again")
    report(f"after the reload: {await row.inner_text()!r}")
    async with page.expect_request(lambda request: request.method == "POST") as first:
        await file_input.set_input_files(installer)
    report(f"resumed with: {(await first.value).headers['content-range']}")
    await expect(page.get_by_role("heading", name="New version")).to_be_visible(timeout=TIMEOUT)


async def _wait_for_progress(page: Page, part: float) -> None:
    """Wait until this part of the file is sent."""
    await page.locator(f"progress[value^='{part:.1f}']").wait_for(timeout=TIMEOUT)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
