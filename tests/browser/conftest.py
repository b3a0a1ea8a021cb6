"""A browser, and administrators who are signed in with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from gateway.dashboard.visits import Visit
from tests.support.browser.sending import CHUNK
from tests.support.browser.visitors import FLAGS, Visitor, sign_in
from tests.support.whole.services import Api

# What a browser, and htmx, write of every answer that is a problem, and of every request that a test breaks off.
TOLD_ANYWAY = (
    "the server responded with a status of",
    "Response Status Error Code",
    "net::ERR_FAILED",
    "net::ERR_UPLOAD_FILE_CHANGED",
    "htmx:afterRequest",
    "htmx:sendError",
)

PATIENCE = 30_000  # ms that a page may take to show what is expected of it, where much else goes on
expect.set_options(timeout=PATIENCE)

Open = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield chromium
        await chromium.close()


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[Open]:
    """Opens pages, each as in a browser of its own. An error in a console fails the test, a refusal by CSP too."""
    said: list[str] = []
    contexts = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(told in message.text for told in TOLD_ANYWAY):
            said.append(message.text)

    async def open_one(**options: object) -> Page:
        # A colour on its way to another is neither of the two.
        context = await browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", listen)
        page.on("pageerror", lambda error: said.append(str(error)))
        return page

    yield open_one
    for context in contexts:
        await context.close()
    assert said == []


@pytest.fixture
async def visitor(open_page: Open, tenant: Api) -> Visitor:
    """The administrator of a new tenant, on the overview."""
    return await sign_in(await open_page(), tenant)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages send chunks of CHUNK bytes."""
    monkeypatch.setattr(Visit, "chunk_size", CHUNK)


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """A file of several chunks of CHUNK bytes, the last of them shorter."""
    path = tmp_path / "editor.exe"
    path.write_bytes(b"".join(number.to_bytes(4) for number in range(5 * CHUNK // 4 + 5)))
    return path
