"""Addresses and sizes of the dashboard's pages."""

from playwright.async_api import Page

from gateway.dashboard.routes import PAGES
from tests.support.system.seed import SeedData


def page_paths(seed_data: SeedData) -> dict[str, str]:
    """The address after `/dashboard` of each row of the table of pages."""
    return {page.path: f"/{page.path.format(**seed_data.parts)}".rstrip("/") for page in PAGES}


async def record_transfers(page: Page) -> list[float]:
    """A list that gets the bytes of each response of a page from now on, without a browser cache."""
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    return sizes
