"""The company login in the dashboard: the button, the way to the provider and back, and what pages show of it."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.api import Answer
from tests.support.services.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider, identity_provider
from tests.support.system.pages import SCRIPT, fetch_csrf_token, load_page, sign_in
from tests.support.system.services import Api, Services

HOST = {"Host": "packages.example.com", "X-Forwarded-Proto": "https"}
DOCUMENT = "/.well-known/openid-configuration"


@dataclass(frozen=True)
class Company:
    services: Services
    api: Api
    idp: IdentityProvider

    async def set(self, name: str = "Acme <ID>", *, with_passwords: bool = True, **options: Any) -> None:
        provider = self.idp.provider(self.api.tenant_id, **options)
        await self.services.operator.providers.set(provider, name, with_passwords=with_passwords)

    async def get(self, *path: str, cookies: dict[str, str] | None = None, **query: str) -> Answer:
        jar = "; ".join(f"{name}={value}" for name, value in (cookies or {}).items())
        return await self.api.anonymous().call("GET", *path, headers={"Cookie": jar}, params=query)

    async def begin(self, next_url: str = "") -> tuple[dict[str, str], dict[str, str]]:
        """The query of the provider's callback, and the browser's cookies."""
        answer = await self.get("sign_in", "oidc", next=next_url)
        assert answer.status == 303, answer.body
        return self.idp.sign_in(answer.headers["Location"]), cookies_of(answer)

    async def session(self) -> dict[str, str]:
        """The cookie header of a signed-in browser."""
        query, cookies = await self.begin()
        answer = await self.get("sign_in", "oidc", "callback", cookies=cookies, **query)
        (value,) = [value for name, value in cookies_of(answer).items() if name.startswith("session-")]
        return {"Cookie": f"session-{self.api.tenant_id}={value}"}


def cookies_of(answer: Answer) -> dict[str, str]:
    headers = answer.headers.getall("Set-Cookie", [])  # type: ignore[attr-defined]
    return {name: morsel.value for header in headers for name, morsel in SimpleCookie(header).items()}


@pytest.fixture
async def company(services: Services, tenant: Api, tmp_path: Path) -> AsyncIterator[Company]:
    async with identity_provider(tmp_path) as idp:
        company = Company(services, tenant, idp)
        await company.set()
        yield company


async def test_the_sign_in_page_has_a_button_and_the_password_form(company: Company, other_tenant: Api) -> None:
    assert "sign_in/oidc" not in str((await other_tenant.anonymous().call("GET", "sign_in")).body)
    page = str((await company.get("sign_in")).body)
    assert f'href="/{company.api.tenant_id}/sign_in/oidc?next=' in page
    assert "Sign in with Acme &lt;ID&gt;" in page
    assert '<button type="submit" class="secondary outline">Sign in</button>' in page
    assert "<details" not in page.partition("<form")[0]


async def test_without_passwords_the_form_is_emergency_access(company: Company) -> None:
    await company.services.operator.users.edit(company.api.tenant_id, "admin", is_break_glass=True)
    await company.set(with_passwords=False)
    page = str((await company.get("sign_in")).body)
    assert "Emergency access" in page.partition("<form")[0]
    assert await sign_in(company.api)


@pytest.mark.parametrize("url", ["", "https://evil.example.com/", "//evil.example.com", "/other/dashboard", "/\\evil"])
async def test_the_provider_leads_back_to_a_page_of_the_tenant(company: Company, url: str) -> None:
    home = f"/{company.api.tenant_id}/dashboard"
    wanted = url or f"{home}/packages?search=a"
    query, cookies = await company.begin(wanted)
    answer = await company.get("sign_in", "oidc", "callback", cookies=cookies, **query, next=url)
    assert (answer.status, answer.headers["Location"]) == (303, home if url else wanted)
    assert cookies_of(answer)[f"sign_in-{company.api.tenant_id}"] == ""


async def test_the_browser_is_sent_to_the_provider_with_pkce(company: Company) -> None:
    answer = await company.get("sign_in", "oidc")
    query = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}
    assert query["redirect_uri"] == f"{company.api.base_url}/sign_in/oidc/callback"
    assert (query["response_type"], query["code_challenge_method"], query["scope"]) == (
        "code",
        "S256",
        "openid profile email",
    )
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"} <= set(cookie.split("; "))


async def test_a_callback_without_the_cookie_of_the_browser_is_refused(company: Company) -> None:
    query, cookies = await company.begin()
    for jar in ({}, dict.fromkeys(cookies, "forged"), dict.fromkeys(cookies, "\udcff")):
        answer = await company.get("sign_in", "oidc", "callback", cookies=jar, **query)
        assert answer.status == 403
        assert "Sign in again" in str(answer.body)
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("issuer", ["", "https://\u00e9vil.example.com"])
async def test_a_callback_that_names_another_issuer_is_refused(company: Company, issuer: str) -> None:
    company.idp.document = {"authorization_response_iss_parameter_supported": False}
    await company.set(roles_claim="groups", default_role="viewer")
    query, cookies = await company.begin()
    answer = await company.get("sign_in", "oidc", "callback", cookies=cookies, **{**query, "iss": issuer})
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_problems_are_pages_without_markup_of_the_provider(company: Company) -> None:
    query, cookies = await company.begin()
    bad = {"state": query["state"], "iss": query["iss"], "error": SCRIPT, "error_description": SCRIPT}
    answer = await company.get("sign_in", "oidc", "callback", cookies=cookies, **bad)
    assert answer.status == 403
    assert "refused the sign-in (unknown)" in str(answer.body)
    assert SCRIPT not in str(answer.body)


async def test_a_provider_that_is_away_leaves_the_password_form(company: Company) -> None:
    await company.set(roles_claim="away")
    provider = company.idp.provider(company.api.tenant_id, allowed_networks=())
    await company.services.operator.providers.store.put(provider)
    answer = await company.get("sign_in", "oidc")
    assert answer.status == 503
    assert "private address" in str(answer.body)
    assert 'name="password"' in str(answer.body)
    assert await sign_in(company.api)


async def test_signing_out_leads_to_the_provider(company: Company) -> None:
    cookie = await company.session()
    token = await fetch_csrf_token(company.api, cookie)
    form = {"csrf_token": token}
    answer = await company.api.anonymous().call("POST", "dashboard", "sign_out", headers=cookie, data=form)
    assert answer.status == 200
    assert answer.headers["Refresh"].startswith(f"0; url={company.idp.issuer}/end?client_id=pkgrepo")
    after = await company.api.anonymous().call("GET", "dashboard", headers=cookie)
    assert (after.status, "sign_in" in after.headers["Location"]) == (307, True)


async def test_a_back_channel_logout_ends_the_session_through_the_gateway(company: Company) -> None:
    cookie = await company.session()
    form = {"logout_token": company.idp.logout_token(sid="session-1")}
    answer = await company.api.anonymous().call("POST", "sign_in", "oidc", "backchannel_logout", data=form)
    assert (answer.status, answer.body) == (200, {"message": "Logout Successful!"})
    assert (await company.api.anonymous().call("GET", "dashboard", headers=cookie)).status == 307
    replayed = await company.api.anonymous().call("POST", "sign_in", "oidc", "backchannel_logout", data=form)
    assert (replayed.status, json.loads(json.dumps(replayed.body))["code"]) == (400, "logout_token_refused")


async def test_a_company_user_is_shown_by_name_and_is_offered_no_password(company: Company) -> None:
    cookie = await company.session()
    account = str((await company.api.anonymous().call("GET", "dashboard", "account", headers=cookie)).body)
    users = await load_page(company.api, "users")
    own = await load_page(company.api, "account")

    (row,) = [row for row in users.split("<tr")[1:] if "Erika Muster" in row]
    (username,) = set(re.findall(r"company-[0-9a-f]+", row))
    assert '<span class="pill info">company login</span>' in row
    assert f"operations/delete_user/{username}" in row
    assert "reset_password" not in row
    assert "Erika Muster" in account
    assert username in account
    assert "operations/change_password" not in account
    assert "operations/change_password" in own


async def test_each_change_of_an_administrator_is_in_the_audit_log_without_the_secret(
    services: Services, tenant: Api, tmp_path: Path
) -> None:
    async with identity_provider(tmp_path) as idp:
        registration = {"issuer": idp.issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        form = {**registration, "ca_certificate": idp.certificate, "default_role": "viewer", "name": SCRIPT[:64]}
        answers = [
            await tenant.call("POST", "test_company_login", data=form),
            await tenant.call("PATCH", "edit_company_login", data=form),
            await tenant.call("GET", "get_company_login"),
        ]
        page = await load_page(tenant, "users", "company_login")
        answers.append(await tenant.call("DELETE", "delete_company_login"))
    assert [answer.status for answer in answers] == [200] * 4, answers
    log = (await tenant.call("GET", "get_audit_log")).body
    entries = [entry for entry in log if entry["operation"].endswith("company_login")]
    operations = ["delete_company_login", "edit_company_login", "test_company_login"]
    assert [entry["operation"] for entry in entries] == operations
    assert entries[0]["target"] == {"issuer": idp.issuer}
    assert entries[1]["changes"]["issuer"] == {"before": "", "after": idp.issuer}
    assert entries[1]["changes"]["client_secret"] == {"before": "", "after": "changed"}
    assert CLIENT_SECRET not in f"{log} {answers} {page}"
    assert SCRIPT[:20] not in page


async def test_the_page_shows_a_company_login_of_the_operator_without_buttons(company: Company) -> None:
    page = await load_page(company.api, "users", "company_login")
    assert company.idp.issuer in page
    assert "The operator of this server manages" in page
    assert "test_company_login" not in page
    assert CLIENT_SECRET not in page
