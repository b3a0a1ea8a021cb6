"""An administrator with a browser."""

from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, Playwright, expect

from tests.support.system.services import PASSWORD, Api

CHROMIUM = Path(__file__).with_name("chromium_without_netlink.py")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",  # host names that a browser does not treat as localhost
]


async def launch_browser(playwright: Playwright) -> Browser:
    return await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


@dataclass(frozen=True)
class Visitor:
    """A page of the dashboard, and the same tenant by its interface."""

    page: Page
    api: Api

    async def go(self, path: str = "") -> None:
        """Load a page by its address after `/dashboard`, with its scripts."""
        await self.page.goto(f"{self.api.base_url}/dashboard{path}")
        await self.page.wait_for_selector("main:not([inert])")

    async def confirm(self, typed: str, button: str = "Delete") -> None:
        """Confirm an action, and an irreversible one by typing its text."""
        dialog = self.page.get_by_role("dialog")
        if typed:
            await expect(dialog.get_by_role("button", name=button)).to_be_disabled()
            await dialog.get_by_role("textbox").fill(typed)
        await expect(dialog.get_by_role("textbox")).to_have_count(1 if typed else 0)
        await dialog.get_by_role("button", name=button).click()

    async def choose(self, name: str, action: str, role: Literal["button", "link"] = "button") -> None:
        """Choose a secondary action of the row of this name."""
        await self.page.get_by_role("button", name=f"Actions for {name}").click()
        await self.page.get_by_role(role, name=action).click()


async def sign_in(page: Page, api: Api) -> Visitor:
    """Sign in as the tenant's administrator with the form."""
    await page.goto(f"{api.base_url}/dashboard")
    await submit_credentials(page)
    await expect(page).to_have_url(f"{api.base_url}/dashboard")
    return Visitor(page, api)


async def submit_credentials(page: Page, password: str = PASSWORD) -> None:
    """Fill in and submit the form of the sign-in page."""
    await page.get_by_label("Username").fill("admin")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


async def start_session(page: Page, api: Api) -> Visitor:
    """Give the browser a session of the tenant's administrator without the form. It loads no page."""
    form = {"username": "admin", "password": PASSWORD}
    answer = await api.anonymous().call("POST", "sign_in", data=form)
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    await page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": api.base_url}])
    return Visitor(page, api)
