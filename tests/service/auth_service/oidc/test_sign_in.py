"""Sign-in and sign-out with an identity provider, its users and their roles, and users with a password beside it."""

import time
from typing import Any

import pytest

from auth_service.oidc.model import NoBreakGlass, ProviderUnavailable
from auth_service.users.store import LastAdministrator
from common.errors import InvalidField
from tests.service.auth_service.oidc.conftest import Company
from tests.support.api import Answer
from tests.support.factories import make_tenant
from tests.support.services.auth import PASSWORD
from tests.support.services.identity_provider import LOGOUT_EVENT, OTHER_RSA_KEY, current, from_now
from tests.support.system.pages import SCRIPT
from tests.support.tables import each


async def test_a_sign_in_opens_a_session_and_returns_the_page(company: Company) -> None:
    answer = await company.sign_in()
    assert (answer.status, answer.body["next_url"]) == (200, "/acme/dashboard"), answer.body
    session = await company.auth.session(company.caller, answer.body["token"])
    assert session is not None
    user = (await company.users())["erika@example.com"]
    assert user["username"] == session.username
    assert (user["name"], user["login"], user["role"]) == ("Erika Muster", "company", ["publisher"])


async def test_roles_change_at_the_next_sign_in(company: Company) -> None:
    await company.sign_in()
    company.idp.claims = {"groups": ["Admins", "Packagers", "Others"], "name": "Erika Neu"}
    assert (await company.sign_in()).status == 200
    (user,) = (await company.users()).values()
    assert (user["name"], user["role"]) == ("Erika Neu", ["publisher", "administrator"])


async def test_a_user_is_the_subject_not_the_email_address(company: Company) -> None:
    first = await company.sign_in()
    company.idp.claims = {"sub": "other"}
    second = await company.sign_in()
    sessions = [await company.auth.session(company.caller, answer.body["token"]) for answer in (first, second)]
    names = {session.username for session in sessions if session}
    assert len(names) == 2


async def test_the_default_role_is_given_without_a_mapped_value(company: Company) -> None:
    await company.set(default_role="viewer")
    company.idp.claims = {"groups": ["Others", 7, {"a": "b"}]}
    assert (await company.sign_in()).status == 200
    assert (await company.users())["erika@example.com"]["role"] == ["viewer"]


async def test_without_a_role_the_sign_in_names_the_claim(company: Company) -> None:
    company.idp.claims = {"groups": None}
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"], answer.body["params"]) == (403, "role_missing", {"claim": "groups"})
    assert await company.users() == {}


async def test_group_overage_is_reported_as_such(company: Company) -> None:
    company.idp.claims = {"groups": None, "_claim_names": {"groups": "src1"}}
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, "too_many_groups")


async def test_hostile_names_are_shortened_and_stripped(company: Company) -> None:
    hostile = f"\u202e{SCRIPT}\x00\ud800" + "n" * 10_000
    company.idp.claims = {"name": hostile, "email": hostile, "preferred_username": f"../{SCRIPT}"}
    assert (await company.sign_in()).status == 200
    (user,) = (await company.users()).values()
    for name in ("name", "email"):
        assert len(user[name]) <= 256
        assert user[name].startswith(SCRIPT), user[name]
        assert user[name].isprintable()
    assert user["username"].startswith("company-")


async def test_a_provider_without_basic_authentication_gets_the_secret_in_the_form(company: Company) -> None:
    company.idp.document = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    await company.set(default_role="viewer")
    assert (await company.sign_in()).body["code"] == "refused_by_provider"  # The double wants the header.


async def test_the_roles_of_a_company_user_cannot_be_edited(company: Company) -> None:
    await company.sign_in()
    name = (await company.users())["erika@example.com"]["username"]
    answer = await company.auth.call(company.caller, "PATCH", "edit_user", name, data={"role": "administrator"})
    assert (answer.status, answer.body["code"]) == (409, "roles_from_provider")


async def test_deleting_a_company_user_ends_their_sessions(company: Company) -> None:
    token = (await company.sign_in()).body["token"]
    name = (await company.users())["erika@example.com"]["username"]
    assert (await company.auth.call(company.caller, "DELETE", "delete_user", name)).status == 200
    assert await company.auth.session(company.caller, token) is None


async def test_a_company_user_has_no_password(company: Company) -> None:
    await company.sign_in()
    name = (await company.users())["erika@example.com"]["username"]
    for password in ("", PASSWORD, "nobody has this password"):
        assert (await company.auth.login(company.caller, name, password)).status in {400, 401}


async def test_a_company_administrator_does_not_count_as_the_last_one(company: Company) -> None:
    company.idp.claims = {"groups": ["Admins"]}
    await company.sign_in()
    answer = await company.auth.call(company.caller, "DELETE", "delete_user", "admin")
    assert (answer.status, answer.body["code"]) == (409, "last_user")


async def test_a_company_user_cannot_change_a_password(company: Company) -> None:
    token = (await company.sign_in()).body["token"]
    session = await company.auth.session(company.caller, token)
    assert session is not None
    caller = company.caller.as_administrator(session.username, session.session_id, ())
    form = {"old_password": PASSWORD, "new_password": PASSWORD}
    answer = await company.auth.call(caller, "POST", "change_password", data=form)
    assert (answer.status, answer.body["code"]) == (409, "no_password")


OPERATION = "sign_in/oidc/backchannel_logout"


async def log_out(company: Company, token: str) -> Answer:
    return await company.auth.call(company.caller, "POST", OPERATION, data={"logout_token": token})


async def is_alive(company: Company, answer: Answer) -> bool:
    return await company.auth.session(company.caller, answer.body["token"]) is not None


async def test_signing_out_names_the_address_of_the_provider(company: Company) -> None:
    signed_in = await company.sign_in()
    answer = await company.auth.call(company.caller, "POST", "sign_out", json={"token": signed_in.body["token"]})
    assert answer.body["url"].startswith(f"{company.idp.issuer}/end?client_id=pkgrepo&post_logout_redirect_uri=http")
    assert not await is_alive(company, signed_in)


async def test_signing_out_of_a_password_session_names_no_address(company: Company) -> None:
    token = await company.auth.token(company.caller)
    assert (await company.auth.call(company.caller, "POST", "sign_out", json={"token": token})).body == {"url": ""}
    assert await company.auth.session(company.caller, token) is None


async def test_signing_out_succeeds_while_the_provider_is_away(company: Company) -> None:
    signed_in = await company.sign_in()
    await company.providers.store.put(company.idp.provider(company.caller.tenant_id, allowed_networks=()))
    answer = await company.auth.call(company.caller, "POST", "sign_out", json={"token": signed_in.body["token"]})
    assert (answer.status, answer.body) == (200, {"url": ""})
    assert not await is_alive(company, signed_in)


async def test_a_logout_token_ends_the_sessions_of_its_sid(company: Company) -> None:
    first, second = await company.sign_in(), await company.sign_in()
    company.idp.claims = {"sid": "session-2"}
    other = await company.sign_in()
    assert (await log_out(company, company.idp.logout_token(sid="session-1"))).status == 200
    assert [await is_alive(company, answer) for answer in (first, second, other)] == [False, False, True]


async def test_a_logout_token_without_sid_ends_all_sessions_of_its_user(company: Company) -> None:
    first, password = await company.sign_in(), await company.auth.token(company.caller, "admin", PASSWORD)
    company.idp.claims = {"sub": "other"}
    other = await company.sign_in()
    assert (await log_out(company, company.idp.logout_token(sub="erika"))).status == 200
    assert [await is_alive(company, answer) for answer in (first, other)] == [False, True]
    assert await company.auth.session(company.caller, password) is not None


async def test_a_sign_in_of_an_ended_provider_session_is_refused(company: Company) -> None:
    assert (await log_out(company, company.idp.logout_token(sid="session-1"))).status == 200
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, "sign_in_expired")


async def test_a_logout_token_counts_once(company: Company) -> None:
    token = company.idp.logout_token(sub="erika")
    assert (await log_out(company, token)).status == 200
    signed_in = await company.sign_in()
    replayed = await log_out(company, token)
    assert (replayed.status, replayed.body["code"]) == (400, "logout_token_refused")
    assert await is_alive(company, signed_in)


async def test_a_logout_token_of_one_tenant_does_not_end_sessions_of_another(company: Company) -> None:
    signed_in, other = await company.sign_in(), await company.auth.tenant()
    await company.providers.store.put(company.idp.provider(other.tenant_id))
    form = {"logout_token": company.idp.logout_token(sid="session-1", sub="erika")}
    assert (await company.auth.call(other, "POST", OPERATION, data=form)).status == 200
    assert await is_alive(company, signed_in)


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example.com"},
    "another audience": {"aud": "other"},
    "no events": {"events": None},
    "another event": {"events": {"other": {}}},
    "events of another kind": {"events": LOGOUT_EVENT},
    "a nonce": {"nonce": "n"},
    "neither sid nor sub": {"sub": None, "sid": None},
    "no jti": {"jti": None},
    "no iat": {"iat": None},
    "an iat of text": {"iat": "soon"},
    "expired": {"exp": from_now(-300)},
    "too old": {"iat": from_now(-3600), "exp": None},
    "from the future": {"iat": from_now(300)},
}


@each("attack", WRONG)
async def test_a_wrong_logout_token_is_refused(company: Company, attack: str) -> None:
    signed_in = await company.sign_in()
    answer = await log_out(
        company, company.idp.logout_token(**{"sub": "erika", "sid": "session-1", **current(WRONG[attack])})
    )
    assert (answer.status, answer.body["code"]) == (400, "logout_token_refused"), answer.body
    assert await is_alive(company, signed_in)


async def test_a_forged_logout_token_is_refused(company: Company) -> None:
    signed_in, now = await company.sign_in(), int(time.time())
    claims = {"iss": company.idp.issuer, "aud": "pkgrepo", "sub": "erika", "iat": now, "exp": now + 60, "jti": "1"}
    id_token = company.idp.sign(claims)
    company.idp.keys = {"rsa": OTHER_RSA_KEY}
    for token in (company.idp.logout_token(sub="erika"), id_token, "x", "a.b.c"):
        answer = await log_out(company, token)
        assert (answer.status, answer.body["code"]) == (400, "logout_token_refused"), answer.body
    assert await is_alive(company, signed_in)


async def test_a_logout_token_is_no_id_token(company: Company) -> None:
    company.idp.forge = lambda _: company.idp.logout_token(sub="erika")
    assert (await company.sign_in()).body["code"] == "id_token_refused"


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
    without_administrators = make_tenant()
    await company.auth.tenants.create(without_administrators)
    for tenant_id in (company.caller.tenant_id, without_administrators.tenant_id):
        with pytest.raises(NoBreakGlass):
            await company.providers.set(company.idp.provider(tenant_id), "Login", with_passwords=False)
    assert (await company.auth.login(company.caller, "bob", PASSWORD)).status == 200


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


@each(
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
    with pytest.raises(InvalidField, match="issuer"):
        await company.set()


async def test_a_provider_is_set_only_if_it_answers(company: Company) -> None:
    company.idp.document = {"issuer": "https://other.example.com"}
    before = await company.providers.find(company.caller.tenant_id)
    with pytest.raises(ProviderUnavailable, match="names another issuer"):
        await company.set(roles_claim="other")
    assert await company.providers.find(company.caller.tenant_id) == before
