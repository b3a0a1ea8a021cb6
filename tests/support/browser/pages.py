"""Addresses and sizes of the dashboard's pages."""

from gateway.dashboard.routes import PAGES
from tests.support.browser.administrators import Visitor
from tests.support.system.seed import SeedData


def page_paths(seed_data: SeedData) -> dict[str, str]:
    """The address after `/dashboard` of each row of the table of pages."""
    return {page.path: f"/{page.path.format(**seed_data.parts)}".rstrip("/") for page in PAGES}


async def transferred_bytes(visitor: Visitor, address: str) -> float:
    """The bytes of a page and its assets without a browser cache."""
    page = await visitor.page.context.new_page()
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    await page.goto(f"{visitor.api.base_url}/dashboard{address}")
    await page.wait_for_load_state("load")
    await page.close()
    return sum(sizes)
