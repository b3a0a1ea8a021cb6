"""A browser with signed-in administrators."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from gateway.dashboard.page_request import PageRequest
from gateway.routing import find_operation
from tests.support.browser.administrators import Visitor, launch_browser, start_session
from tests.support.browser.uploads import CHUNK
from tests.support.system.fields import select_fields
from tests.support.system.pages import SCRIPT
from tests.support.system.releases import set_policy
from tests.support.system.seed import SeedData, seed_tenant
from tests.support.system.services import Api, Services

# The console messages of the browser and htmx for problems and aborted requests.
EXPECTED_ERRORS = (
    "the server responded with a status of",
    "Response Status Error Code",
    "net::ERR_FAILED",
    "net::ERR_INTERNET_DISCONNECTED",
    "net::ERR_UPLOAD_FILE_CHANGED",
    "htmx:afterRequest",
    "htmx:sendError",
    "The Cross-Origin-Opener-Policy header has been ignored",  # over plain HTTP
)

TIMEOUT = 30_000  # ms; enough for a busy machine
expect.set_options(timeout=TIMEOUT)

Open = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        chromium = await launch_browser(playwright)
        yield chromium
        await chromium.close()


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[Open]:
    """Open pages in separate browser contexts. A console error or CSP violation fails the test."""
    errors: list[str] = []
    contexts = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(text in message.text for text in EXPECTED_ERRORS):
            errors.append(f"{message.location['url']}: {message.text}")

    async def open_one(**options: object) -> Page:
        # Colours in a transition would fail the contrast checks.
        context = await browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("console", listen)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield open_one
    for context in contexts:
        await context.close()
    assert errors == []


@pytest.fixture
async def visitor(open_page: Open, tenant: Api) -> Visitor:
    """The signed-in administrator of a new tenant, before the first page."""
    return await start_session(await open_page(), tenant)


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant with one object of each kind, and with markup in every text."""
    seed_data = await seed_tenant(await services.tenant())
    api, package = seed_data.api, seed_data.parts["package_id"]
    texts = dict.fromkeys(("package_name", "package_publisher", "package_description"), SCRIPT)
    assert (await api.call("PATCH", "edit_package", package, data=texts)).status == 200
    group = {"name": SCRIPT, "package_ids": "A.B", "allow_unknown": "1"}
    assert (await api.call("POST", "add_blacklist_group", data=group)).status == 201
    texts = {"package_version": "6.6", "channel": SCRIPT[:64], "switch_Silent": SCRIPT}
    adding, _ = find_operation("POST", ("add_package_version", package))
    version = select_fields(adding, {**seed_data.form, **texts})
    assert (await api.call("POST", "add_package_version", package, data=version)).status == 201
    await set_policy(api, "pilot,everyone", {"everyone": {"approvals": 1}})
    held = await api.call("POST", "hold_version", seed_data.parts["version_uid"], data={"reason": SCRIPT})
    assert held.status == 200
    return seed_data


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages send chunks of CHUNK bytes."""
    monkeypatch.setattr(PageRequest, "chunk_size", CHUNK)


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """A file of several chunks of CHUNK bytes, the last of them shorter."""
    path = tmp_path / "editor.exe"
    path.write_bytes(b"".join(number.to_bytes(4) for number in range(5 * CHUNK // 4 + 5)))
    return path
