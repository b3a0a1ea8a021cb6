"""Screenshots of every page, light and dark, for deploy/screenshots.

`make screenshots`, or `python -m tests.support.browser.screenshots FOLDER` for another folder.
"""

import asyncio
import io
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from PIL import Image
from playwright.async_api import Page, async_playwright

from common.mongo import open_database
from gateway.dashboard.routes import PAGES
from tests.support.browser.administrators import Visitor, launch_browser, sign_in
from tests.support.browser.sample_tenant import fill_tenant
from tests.support.browser.uploads import upload_by_api
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.servers.stores import private_stores
from tests.support.system.services import Api, all_services
from upload_service.downloads.store import Download, MongoDownloadStore

FOLDER = Path(__file__).parents[3] / "deploy" / "screenshots"
SCREEN, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
ON_PHONES = ("", "packages", "publish", "releases", "clients")  # pages that have a picture of a phone, too
SATURDAY = 5  # as `weekday` counts
COLOURS = 128  # of a screenshot; a page has few


async def save_screenshots(target: Path) -> None:
    """Save all screenshots in a folder."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        async with private_stores(folder / "stores") as stores:
            sockets = folder / "services"
            sockets.mkdir()
            async with all_services(sockets, stores.mongo_url, stores.redis_url, stores.rabbitmq_url) as services:
                api = await services.tenant(tenant_id="acme", storage_quota=5 << 20, max_clients=50)
                await fill_tenant(api)
                await _add_downloads(stores.mongo_url, api)
                await _save_all(api, target)


async def _add_downloads(mongo_url: str, api: Api) -> None:
    """Add downloads of thirty days, more of the first packages and fewer at weekends."""
    packages = (await api.call("POST", "get_packages")).body
    midnight, choice = datetime.now(UTC).replace(hour=0), random.Random(1)  # noqa: S311  numbers, not secrets
    days = [midnight - timedelta(days=number) for number in range(30)]
    async with open_database(mongo_url, "upload") as database:
        downloads = [
            Download(api.tenant_id, package["VERSIONS_UID"][0], str(uuid4()), day)
            for rank, package in enumerate(packages)
            for day in days
            for _ in range(choice.randrange(60 // (rank + 1) // (1 if day.weekday() < SATURDAY else 5) + 1))
        ]
        await MongoDownloadStore(database).add(downloads)


async def _save_all(api: Api, target: Path) -> None:
    values = await _values(api)
    async with async_playwright() as playwright:
        browser = await launch_browser(playwright)
        for scheme in ("light", "dark"):
            context = await browser.new_context(color_scheme=scheme, viewport=SCREEN, reduced_motion="reduce")  # type: ignore[arg-type]
            page = await context.new_page()
            await page.goto(f"{api.base_url}/sign_in")
            await _save(page, target / f"sign-in-{scheme}.png")
            visitor = await sign_in(page, api)
            for row in PAGES:
                if row.path == "check":  # a part of a page
                    continue
                await _open(visitor, row.path, values)
                await _save(page, target / f"{_name(row.path)}-{scheme}.png")
            await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
            for path in ON_PHONES if scheme == "light" else ():
                await _open(visitor, path, values)
                await _save(page, target / f"{_name(path)}-phone.png")
        await browser.close()


async def _open(visitor: Visitor, path: str, values: dict[str, str]) -> None:
    await visitor.go(f"/{path.format(**values)}".rstrip("/"))
    await visitor.page.wait_for_load_state("load")


def _name(path: str) -> str:
    return "-".join(part.strip("{}").replace("_", "-") for part in path.split("/") if part) or "overview"


async def _save(page: Page, file: Path) -> None:
    picture = Image.open(io.BytesIO(await page.screenshot()))
    picture.convert("RGB").quantize(COLOURS).save(file, optimize=True)


async def _values(api: Api) -> dict[str, str]:
    package = (await api.call("POST", "get_packages")).body[0]
    server_filename = await upload_by_api(api, f"editor-1.2.3.msi~{uuid4().hex}", MACHINE_MSI)
    return {
        "package_id": package["PACKAGE_ID"],
        "version_uid": package["VERSIONS_UID"][0],
        "server_filename": server_filename,
    }


if __name__ == "__main__":
    asyncio.run(save_screenshots(Path(sys.argv[1]) if sys.argv[1:] else FOLDER))
