"""Tenants that allow passwords to break-glass users only."""

import pytest

from auth_service.oidc.model import NoBreakGlass, ProviderUnavailable
from auth_service.users.store import LastAdministrator
from common.errors import InvalidField
from tests.service.auth_service.oidc.conftest import Company
from tests.support.factories import make_tenant
from tests.support.services.auth import PASSWORD


@pytest.fixture
async def without_passwords(company: Company) -> Company:
    """`admin` is a break-glass user, `bob` is not."""
    await company.auth.add_user(company.caller, "bob")
    await company.auth.users.edit(company.caller.tenant_id, "admin", is_break_glass=True)
    await company.set(with_passwords=False)
    return company


async def test_only_break_glass_users_sign_in_with_a_password(without_passwords: Company) -> None:
    auth, caller = without_passwords.auth, without_passwords.caller
    assert (await auth.login(caller, "admin", PASSWORD)).status == 200
    right, wrong = await auth.login(caller, "bob", PASSWORD), await auth.login(caller, "bob", "wrong password")
    assert right.status == wrong.status == 401
    assert {**right.body, "request_id": ""} == {**wrong.body, "request_id": ""}


async def test_switching_passwords_off_ends_other_sessions(company: Company) -> None:
    auth, caller = company.auth, company.caller
    await auth.add_user(caller, "bob")
    await auth.users.edit(caller.tenant_id, "admin", is_break_glass=True)
    tokens = [await auth.token(caller, name) for name in ("admin", "bob")]
    tokens.append((await company.sign_in()).body["token"])
    await company.set(with_passwords=False)
    assert [await auth.session(caller, token) is not None for token in tokens] == [True, False, True]


async def test_passwords_stay_on_without_a_break_glass_administrator(company: Company) -> None:
    await company.auth.add_user(company.caller, "bob")
    with pytest.raises(NoBreakGlass):
        await company.set(with_passwords=False)
    assert (await company.auth.login(company.caller, "bob", PASSWORD)).status == 200


async def test_passwords_stay_on_without_any_administrator(company: Company) -> None:
    other = make_tenant()
    await company.auth.tenants.create(other)
    with pytest.raises(NoBreakGlass):
        await company.providers.set(company.idp.provider(other.tenant_id), "Login", with_passwords=False)


async def test_a_user_without_emergency_access_loses_their_sessions(without_passwords: Company) -> None:
    auth, caller = without_passwords.auth, without_passwords.caller
    await auth.users.edit(caller.tenant_id, "bob", is_break_glass=True)
    token = await auth.token(caller, "bob")
    await auth.users.edit(caller.tenant_id, "bob", is_break_glass=False)
    assert await auth.session(caller, token) is None


async def test_a_login_while_passwords_are_switched_off_is_refused(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, False])

    async def allows_passwords(_: object, tenant_id: str) -> bool:
        return next(answers)

    monkeypatch.setattr("auth_service.users.store.MongoUserStore.allows_passwords", allows_passwords)
    assert (await company.auth.login(company.caller)).status == 401


async def test_the_last_break_glass_administrator_stays(without_passwords: Company) -> None:
    auth, caller = without_passwords.auth, without_passwords.caller
    deleted = await auth.call(caller, "DELETE", "delete_user", "admin")
    edited = await auth.call(caller, "PATCH", "edit_user", "admin", data={"role": "viewer"})
    assert [(answer.status, answer.body["code"]) for answer in (deleted, edited)] == [(409, "last_user")] * 2
    with pytest.raises(LastAdministrator):
        await auth.users.edit(caller.tenant_id, "admin", is_break_glass=False)
    await auth.users.edit(caller.tenant_id, "bob", is_break_glass=True)
    assert (await auth.call(caller, "DELETE", "delete_user", "admin")).status == 200


async def test_removing_the_provider_allows_passwords_again(without_passwords: Company) -> None:
    auth, caller = without_passwords.auth, without_passwords.caller
    token = (await without_passwords.sign_in()).body["token"]
    await without_passwords.providers.remove(caller.tenant_id)
    assert (await auth.login(caller, "bob", PASSWORD)).status == 200
    assert await auth.session(caller, token) is None
    assert (await auth.call(caller, "POST", "begin_sign_in", json={})).body["code"] == "no_identity_provider"


async def test_the_tenant_names_the_login(without_passwords: Company) -> None:
    tenant = await without_passwords.auth.tenants.find(without_passwords.caller.tenant_id)
    assert (tenant.login_name, tenant.password_login) == ("Company login", False)


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.example.com",
        "login.example.com",
        "https://user@login.example.com",
        "https://login.example.com?a=b",
        "https://login.microsoftonline.com/common/v2.0",
        "https://login.microsoftonline.com/organizations/v2.0",
        "https://login.microsoftonline.com/consumers/v2.0",
        "https://login.microsoftonline.com/Common/v2.0",
        "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
    ],
)
async def test_an_issuer_of_nobody_or_of_everybody_is_refused(company: Company, issuer: str) -> None:
    company.idp.issuer = issuer
    with pytest.raises(InvalidField, match="--issuer"):
        await company.set()


async def test_a_provider_is_set_only_if_it_answers(company: Company) -> None:
    company.idp.document = {"issuer": "https://other.example.com"}
    before = await company.providers.find(company.caller.tenant_id)
    with pytest.raises(ProviderUnavailable, match="names another issuer"):
        await company.set(roles_claim="other")
    assert await company.providers.find(company.caller.tenant_id) == before
