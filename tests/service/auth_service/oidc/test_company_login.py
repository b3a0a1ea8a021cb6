"""The company login that administrators of a tenant set: what is stored and shown, and what a provider may be."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from auth_service.oidc.client import ProviderClient
from auth_service.oidc.model import ProviderChanged
from auth_service.oidc.service import Providers
from auth_service.oidc.store import MongoProviderStore
from common.http.middleware import AUDIT_HEADER
from common.mongo import open_database
from tests.service.auth_service.oidc.conftest import Company
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD, Auth, serving_auth
from tests.support.services.identity_provider import CLIENT_ID, CLIENT_SECRET, identity_provider
from tests.support.tables import each

DISCOVERY = "/.well-known/openid-configuration"
LOOPBACK = ("127.0.0.0/8", "::1")


@pytest.fixture(scope="module")
async def auth(mongo_url: str, redis_url: str) -> AsyncIterator[Auth]:
    """A service whose operator allows the network of the provider's double."""
    async with serving_auth(mongo_url, redis_url, company_login_networks=LOOPBACK) as served:
        yield served


@pytest.fixture
async def company(auth: Auth, tmp_path: Path, mongo_url: str) -> AsyncIterator[Company]:
    """A tenant without a provider. The double has a name, because no error may contain an address of this machine."""
    caller = await auth.tenant()
    async with (
        identity_provider(tmp_path, "localhost") as idp,
        open_database(mongo_url, auth.settings.database) as database,
    ):
        yield Company(auth, caller, idp, Providers(MongoProviderStore(database), ProviderClient(), auth.users))


def form_of(company: Company, **changes: str) -> dict[str, str]:
    return {
        "issuer": company.idp.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "ca_certificate": company.idp.certificate,
        "roles_claim": "groups",
        "role_map": json.dumps([{"value": "Packagers", "role": "publisher"}]),
        **changes,
    }


async def edit(company: Company, *, seen: str = "", **changes: str) -> Answer:
    data, headers = form_of(company, **changes), {"If-Match": seen} if seen else {}
    return await company.auth.call(company.caller, "PATCH", "edit_company_login", data=data, headers=headers)


async def check(company: Company, **changes: str) -> Answer:
    return await company.auth.call(company.caller, "POST", "test_company_login", data=form_of(company, **changes))


async def shown(company: Company) -> dict[str, Any]:
    answer = await company.auth.call(company.caller, "GET", "get_company_login")
    assert answer.status == 200, answer.body
    return dict(answer.body)


async def test_an_administrator_sets_a_provider_and_its_users_sign_in(company: Company) -> None:
    assert (await shown(company))["set_by"] == "nobody"
    assert (await edit(company, name="Acme ID")).status == 200
    login = await shown(company)
    assert (login["set_by"], login["issuer"], login["has_secret"]) == ("administrator", company.idp.issuer, True)
    assert login["role_map"] == [{"value": "Packagers", "role": "publisher"}]
    assert login["redirect_uri"] == f"{company.caller.base_url}/sign_in/oidc/callback"
    assert (await company.sign_in()).status == 200
    assert [user["role"] for user in (await company.users()).values()] == [["publisher"]]
    assert (await company.auth.tenants.find(company.caller.tenant_id)).login_name == "Acme ID"


async def test_no_answer_and_no_audit_entry_has_the_secret(company: Company) -> None:
    refused = await edit(company, issuer="https://localhost:1")
    answers = [
        refused,
        await edit(company),
        await check(company, client_secret=""),
        await company.auth.call(company.caller, "GET", "get_company_login"),
        await company.auth.call(company.caller, "GET", "get_users"),
    ]
    assert refused.status == 503
    assert [CLIENT_SECRET in f"{answer.body} {answer.headers}" for answer in answers] == [False] * 5
    changes = json.loads(answers[1].headers[AUDIT_HEADER])["changes"]
    assert changes["client_secret"] == ["", "changed"]
    assert changes["map"] == ["", "Packagers=publisher"]


async def test_an_empty_secret_keeps_the_stored_one(company: Company) -> None:
    await edit(company)
    assert (await edit(company, client_secret="", default_role="viewer")).status == 200
    assert (await company.providers.find(company.caller.tenant_id)).client_secret == CLIENT_SECRET
    assert (await company.sign_in()).status == 200


@each("field", ["issuer", "client_id", "ca_certificate"])
async def test_the_stored_secret_is_sent_to_no_other_provider(company: Company, field: str) -> None:
    await edit(company)
    company.idp.calls.clear()
    value = form_of(company)[field]
    other = {"issuer": f"{value}/", "client_id": "other", "ca_certificate": f"{value}{value}"}[field]
    for call in (edit, check):
        answer = await call(company, **{"client_secret": "", field: other})
        assert (answer.status, answer.body["params"]["reason"]) == (400, "secret_required")
    assert company.idp.calls == []


async def test_a_test_says_what_is_wrong_and_stores_nothing(company: Company) -> None:
    assert (await check(company)).status == 200
    wrong = {
        "secret_refused": await check(company, client_secret="another"),
        "provider_certificate": await check(company, ca_certificate=""),
        "provider_name": await check(company, issuer="https://login.invalid"),
        "provider_connection": await check(company, issuer="https://localhost:1"),
        "not_an_issuer": await check(company, issuer="http://login.example.com"),
        "everybodys_issuer": await check(company, issuer="https://login.microsoftonline.com/common/v2.0"),
        "not_pem": await check(company, ca_certificate="x"),
        "not_a_map": await check(company, role_map="[1]"),
    }
    company.idp.document = {"issuer": "https://other.example.com"}
    wrong["provider_issuer"] = await check(company)
    reasons = {reason: answer.body["params"]["reason"] for reason, answer in wrong.items()}
    assert reasons == {reason: reason for reason in wrong}
    assert (await shown(company))["set_by"] == "nobody"


async def test_a_test_reads_the_provider_anew(company: Company) -> None:
    await edit(company)
    company.idp.replies[DISCOVERY] = lambda _: web.Response(status=404)
    answer = await check(company, client_secret="")
    assert answer.body["params"]["reason"] == "provider_answer"


async def test_a_refused_change_keeps_the_provider(company: Company) -> None:
    await edit(company)
    before = await shown(company)
    assert (await edit(company, client_secret="another")).status == 400
    assert (await edit(company, issuer="https://localhost:1")).status == 503
    assert (await edit(company, role_map='[{"value": "a", "role": "root"}]')).status == 400
    assert await shown(company) == before


async def test_the_second_of_two_changes_learns_of_the_first(company: Company) -> None:
    seen = f'"{(await shown(company))["revision"]}"'
    assert (await edit(company, seen=seen)).status == 200
    second = await edit(company, seen=seen, default_role="viewer")
    assert (second.status, second.body["code"]) == (412, "company_login_changed")
    assert (await shown(company))["default_role"] == "none"


async def test_a_change_during_the_test_of_another_is_not_overwritten(company: Company) -> None:
    await edit(company)
    tenant_id = company.caller.tenant_id
    before = await company.providers.find(tenant_id)
    await company.set(allowed_networks=LOOPBACK)
    with pytest.raises(ProviderChanged):
        await company.providers.edit(before, replace(before, roles_claim="mine"), "mine")
    assert (await company.providers.find(tenant_id)).by_tenant is False
    assert (await company.auth.tenants.find(tenant_id)).login_name == "Company login"


async def test_a_provider_of_the_operator_is_shown_and_not_changed(company: Company) -> None:
    await company.set(allowed_networks=LOOPBACK)
    login = await shown(company)
    assert (login["set_by"], login["editable"]) == ("operator", False)
    assert CLIENT_SECRET not in str(login)
    calls = [
        await edit(company),
        await check(company),
        await company.auth.call(company.caller, "DELETE", "delete_company_login"),
    ]
    assert [answer.body["code"] for answer in calls] == ["company_login_of_operator"] * 3
    assert (await company.sign_in()).status == 200


async def test_another_tenant_sees_and_changes_only_its_own(company: Company) -> None:
    await edit(company)
    other = await company.auth.tenant()
    login = (await company.auth.call(other, "GET", "get_company_login")).body
    assert (login["set_by"], login["issuer"]) == ("nobody", "")
    deleted = await company.auth.call(other, "DELETE", "delete_company_login")
    assert (deleted.status, deleted.body["code"]) == (404, "no_identity_provider")
    kept = await company.auth.call(other, "PATCH", "edit_company_login", data=form_of(company, client_secret=""))
    assert kept.body["params"]["reason"] == "secret_required"
    assert (await company.sign_in()).status == 200
    begun = await company.auth.call(other, "POST", "begin_sign_in", json={})
    assert begun.body["code"] == "no_identity_provider"


async def test_deleting_ends_the_sessions_of_its_users_and_nobody_elses(company: Company) -> None:
    await edit(company)
    token = (await company.sign_in()).body["token"]
    own = await company.auth.token(company.caller)
    assert (await company.auth.call(company.caller, "DELETE", "delete_company_login")).status == 200
    assert await company.auth.session(company.caller, token) is None
    assert await company.auth.session(company.caller, own)
    assert (await company.auth.login(company.caller, "admin", PASSWORD)).status == 200
    assert len(await company.users()) == 1
    assert (await company.auth.tenants.find(company.caller.tenant_id)).login_name == ""


@pytest.fixture(scope="module")
async def public_only(mongo_url: str, redis_url: str) -> AsyncIterator[Auth]:
    """A service with the default settings."""
    async with serving_auth(mongo_url, redis_url) as served:
        yield served


INTERNAL = ("localhost", "0x7f.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "[::1]",
            "[::ffff:127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1]")  # fmt: skip


@each("host", INTERNAL)
@pytest.mark.parametrize("operation", ["test_company_login", "edit_company_login"])
async def test_no_administrator_makes_the_server_call_an_internal_address(
    company: Company, public_only: Auth, host: str, operation: str
) -> None:
    company.idp.calls.clear()
    caller = await public_only.tenant()
    form = form_of(company, issuer=f"https://{host}:{urlsplit(company.idp.issuer).port}")
    method = "POST" if operation.startswith("test") else "PATCH"
    answer = await public_only.call(caller, method, operation, data=form)
    assert (answer.status, answer.body["params"]["reason"]) == (503, "provider_private"), answer.body
    assert company.idp.calls == []


async def test_a_name_that_changes_its_address_is_checked_at_each_connection(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.1", "127.0.0.1", "169.254.169.254"]

    async def resolve(_: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, object]]:
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [{"hostname": host, "host": address, "port": port, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr("common.http.outbound.ThreadedResolver.resolve", resolve)
    company.idp.calls.clear()
    answer = await check(company)
    assert answer.body["params"]["reason"] == "provider_private"
    assert company.idp.calls == [DISCOVERY, "/jwks"]


@each("endpoint", ["jwks_uri", "token_endpoint"])
async def test_an_internal_endpoint_of_the_discovery_document_is_not_called(company: Company, endpoint: str) -> None:
    company.idp.document = {endpoint: "https://169.254.169.254/latest"}
    answer = await check(company)
    assert (answer.status, answer.body["params"]["reason"]) == (503, "provider_private")


@each("path", [DISCOVERY, "/jwks", "/token"])
async def test_a_redirect_is_not_followed(company: Company, path: str) -> None:
    target = f"{company.idp.issuer}/internal"
    company.idp.replies[path] = lambda _: web.Response(status=307, headers={"Location": target})
    answer = await check(company)
    assert (answer.status, answer.body["params"]["reason"]) == (503, "provider_answer")
    assert "/internal" not in company.idp.calls


@each("networks", [("10.0.0.0/8",), None])
async def test_the_settings_of_the_operator_count_for_providers_that_exist(
    company: Company, mongo_url: str, networks: tuple[str, ...] | None
) -> None:
    await edit(company)
    async with open_database(mongo_url, company.auth.settings.database) as database:
        provider = await MongoProviderStore(database, networks).find(company.caller.tenant_id)
    assert (provider and provider.allowed_networks) == networks


async def test_an_operator_can_leave_company_logins_to_nobody_else(
    company: Company, mongo_url: str, redis_url: str
) -> None:
    async with serving_auth(mongo_url, redis_url, company_login_by_tenants=False) as closed:
        caller = await closed.tenant()
        refused = await closed.call(caller, "PATCH", "edit_company_login", data=form_of(company))
        login = (await closed.call(caller, "GET", "get_company_login")).body
    assert (refused.status, refused.body["code"]) == (403, "company_login_of_operator")
    assert login["editable"] is False
