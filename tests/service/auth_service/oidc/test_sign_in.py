"""A sign-in with an identity provider that succeeds, its user and the user's roles."""

from tests.service.auth_service.oidc.conftest import Company
from tests.support.services.auth import PASSWORD
from tests.support.system.pages import SCRIPT


async def test_a_sign_in_opens_a_session_and_returns_the_page(company: Company) -> None:
    answer = await company.sign_in()
    assert (answer.status, answer.body["next_url"]) == (200, "/acme/dashboard"), answer.body
    session = await company.auth.session(company.caller, answer.body["token"])
    assert session is not None
    assert session.username == (await company.users())["erika@example.com"]["username"]


async def test_a_user_has_name_email_and_the_mapped_roles(company: Company) -> None:
    await company.sign_in()
    user = (await company.users())["erika@example.com"]
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
