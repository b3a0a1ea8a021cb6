"""Sign-in, sign-out and language.

The company login has a certified provider: `oidc-provider` for Node.js.
"""

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from auth_service.oidc.model import Provider
from common.auth.roles import Role
from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, sign_in, submit_credentials
from tests.support.servers.certificates import make_certificate
from tests.support.system.services import PASSWORD, Api, Services

pytestmark = pytest.mark.full


async def test_a_wrong_password_keeps_the_requested_page_and_the_username(open_page: Open, tenant: Api) -> None:
    page = await open_page()
    await page.goto(f"{tenant.base_url}/docs")
    await submit_credentials(page, "wrong")
    await expect(page.get_by_role("alert")).to_have_text("The username or the password is wrong.")
    await expect(page.get_by_label("Username")).to_have_value("admin")
    await expect(page.get_by_label("Password")).to_be_focused()
    await submit_credentials(page)
    await expect(page).to_have_url(f"{tenant.base_url}/docs")


async def test_over_plain_http_only_our_own_form_signs_in(open_page: Open, tenant: Api) -> None:
    page, named = await open_page(), replace(tenant, base_url=tenant.base_url.replace("127.0.0.1", "packages.test"))
    await sign_in(page, named)
    await page.context.clear_cookies()
    form = f'''<form method="post" action="{named.base_url}/sign_in"><input name="username" value="admin">
        <input name="password" value="{PASSWORD}"><button>Win</button></form>'''
    await page.route("http://evil.test/", lambda route: route.fulfill(body=form, content_type="text/html"))
    await page.goto("http://evil.test/")
    await page.get_by_role("button", name="Win").click()
    await expect(page.get_by_role("alert")).to_contain_text("Another site sent this form.")
    assert await page.context.cookies() == []


async def test_a_page_continues_in_a_session_from_another_window(visitor: Visitor) -> None:
    await visitor.go("/users")
    page = visitor.page
    await page.context.clear_cookies()
    await sign_in(await page.context.new_page(), visitor.api)
    await page.get_by_role("button", name="Add user").click()
    await page.get_by_label("Username").fill("anna")
    await page.get_by_label("Password", exact=True).fill("a password of hers")
    await page.locator("form").get_by_role("button", name="Add user").click()
    await expect(page.get_by_role("rowheader", name="anna")).to_be_visible()


async def test_an_older_window_signs_out_of_a_session_from_another_window(visitor: Visitor) -> None:
    await visitor.go()
    other = await visitor.page.context.new_page()
    await visitor.page.context.clear_cookies()
    await sign_in(other, visitor.api)
    token = await other.locator("[name=csrf_token]").input_value()
    await expect(visitor.page.locator("[name=csrf_token]")).to_have_value(token)
    await visitor.page.get_by_role("button", name="Sign out").click()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    await other.reload()
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()


SERVER = Path(__file__).parents[1] / "support" / "oidc_provider" / "server.js"
SECRET = "a secret / of the + provider: 100%"


@dataclass(frozen=True)
class Company:
    """A tenant and its provider. `accounts` is the file with the claims of the provider's users."""

    api: Api
    issuer: str
    accounts: Path

    def change(self, **claims: Any) -> None:
        self.accounts.write_text(json.dumps({"erika": {"name": "Erika Muster", "email": "e@example.com", **claims}}))

    async def sign_in(self, page: Page) -> None:
        """Sign in on the sign-in page and at the provider, where the browser may be signed in already."""
        await page.goto(f"{self.api.base_url}/sign_in")
        await page.get_by_role("button", name="Sign in with Acme ID").click()
        await page.get_by_placeholder("Enter any login").fill("erika")
        await page.get_by_placeholder("and password").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
        await page.get_by_role("button", name="Continue").click()


async def open_browser(open_page: Open, **options: object) -> Page:
    """A browser that trusts the provider's certificate, and does not load the fonts of its pages."""
    page = await open_page(ignore_https_errors=True, **options)
    await page.context.route("https://fonts.googleapis.com/**", lambda route: route.abort())
    return page


@pytest.fixture
async def company(services: Services, tenant: Api, tmp_path: Path) -> AsyncIterator[Company]:
    node = shutil.which("node")
    assert node, "`make test-full` installs Node.js"
    certificate, accounts = make_certificate(tmp_path, "127.0.0.1"), tmp_path / "accounts.json"
    client = {"client_id": "pkgrepo", "client_secret": SECRET, "base_url": tenant.base_url}
    settings = json.dumps({**client, "certificate": str(certificate), "accounts": str(accounts)})
    process = await asyncio.create_subprocess_exec(node, str(SERVER), settings, stdout=PIPE)
    try:
        assert process.stdout is not None
        issuer = f"https://127.0.0.1:{(await process.stdout.readline()).decode().strip()}"
        provider = Provider(
            tenant.tenant_id,
            issuer,
            "pkgrepo",
            SECRET,
            "groups",
            (("Packagers", Role.PUBLISHER), ("Admins", Role.ADMINISTRATOR)),
            allowed_networks=("127.0.0.0/8",),
            ca_certificate=certificate.read_text().partition("-----BEGIN PRIVATE KEY")[0],
        )
        await services.operator.providers.set(provider, "Acme ID", with_passwords=True)
        company = Company(tenant, issuer, accounts)
        company.change(groups=["Packagers"])
        yield company
    finally:
        process.terminate()
        await process.wait()


async def test_a_user_has_the_role_of_a_group_at_each_sign_in(open_page: Open, company: Company) -> None:
    for group, role in (("Packagers", "Publisher"), ("Admins", "Administrator")):
        company.change(groups=[group])
        page = await open_browser(open_page)
        await company.sign_in(page)
        await expect(page).to_have_url(f"{company.api.base_url}/dashboard")
        await page.goto(f"{company.api.base_url}/dashboard/account")
        await expect(page.locator("main")).to_contain_text(role)


async def test_signing_out_ends_the_session_of_the_provider_too(open_page: Open, company: Company) -> None:
    page = await open_browser(open_page)
    await company.sign_in(page)
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("button", name="Yes, sign me out").click()
    await expect(page).to_have_url(f"{company.api.base_url}/sign_in")
    await page.get_by_role("button", name="Sign in with Acme ID").click()
    await expect(page.get_by_placeholder("Enter any login")).to_be_visible()


async def test_a_sign_out_at_the_provider_ends_the_session(open_page: Open, company: Company) -> None:
    page = await open_browser(open_page)
    await company.sign_in(page)
    await expect(page).to_have_url(f"{company.api.base_url}/dashboard")
    await page.goto(f"{company.issuer}/session/end")
    await page.get_by_role("button", name="Yes, sign me out").click()
    await expect(page.locator("body")).to_contain_text("Sign-out Success")
    await page.goto(f"{company.api.base_url}/dashboard")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
