"""An administrator in front of a browser."""

from dataclasses import dataclass

from playwright.async_api import Page, expect

from tests.support.whole.services import PASSWORD, Api

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",  # names of which browsers think as of any but this machine's own
]


@dataclass(frozen=True)
class Visitor:
    """A page of the dashboard, and the same tenant by its interface."""

    page: Page
    api: Api

    async def go(self, path: str = "") -> None:
        """Load a page by its address after `/dashboard`."""
        await self.page.goto(f"{self.api.base_url}/dashboard{path}")

    async def confirm(self, typed: str, button: str = "Delete") -> None:
        """Type what an action that cannot be undone wants typed, and go on."""
        dialog = self.page.get_by_role("dialog")
        await expect(dialog.get_by_role("button", name=button)).to_be_disabled()
        await dialog.get_by_role("textbox").fill(typed)
        await dialog.get_by_role("button", name=button).click()


async def sign_in(page: Page, api: Api) -> Visitor:
    """Sign in as the tenant's administrator, as a person does."""
    await page.goto(f"{api.base_url}/dashboard")
    await page.get_by_label("Username").fill("admin")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{api.base_url}/dashboard")
    return Visitor(page, api)
