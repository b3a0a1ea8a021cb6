"""The company login in a browser, with a certified provider: `oidc-provider` for Node.js."""

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from auth_service.oidc.model import Provider
from common.auth.roles import Role
from tests.browser.conftest import Open
from tests.support.servers.certificates import make_certificate
from tests.support.system.services import Api, Services

pytestmark = pytest.mark.full

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


async def test_a_user_signs_in_with_the_role_of_a_group(open_page: Open, company: Company) -> None:
    page = await open_browser(open_page)
    await company.sign_in(page)
    await expect(page).to_have_url(f"{company.api.base_url}/dashboard")
    await page.goto(f"{company.api.base_url}/dashboard/account")
    await expect(page.locator("main")).to_contain_text("Publisher")
    await expect(page.get_by_role("link", name="Users")).to_have_count(0)


async def test_a_new_role_counts_from_the_next_sign_in(open_page: Open, company: Company) -> None:
    await company.sign_in(await open_browser(open_page))
    company.change(groups=["Admins"])
    page = await open_browser(open_page)
    await company.sign_in(page)
    await page.goto(f"{company.api.base_url}/dashboard/users")
    row = page.get_by_role("row").filter(has_text="Erika Muster e@example.com")
    await expect(row).to_contain_text("Administrator company login")


async def test_a_user_without_a_mapped_group_sees_why(open_page: Open, company: Company) -> None:
    company.change(groups=["Others"])
    page = await open_browser(open_page, locale="de-DE")
    await page.goto(f"{company.api.base_url}/sign_in/oidc")
    await page.get_by_placeholder("Enter any login").fill("erika")
    await page.get_by_placeholder("and password").fill("any")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_role("alert")).to_contain_text("Im Claim groups steht kein Wert")


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
