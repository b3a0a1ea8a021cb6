"""Sign-out at the provider, and the provider's back-channel logout."""

import time
from typing import Any

import pytest

from tests.service.auth_service.oidc.conftest import Company
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD
from tests.support.services.identity_provider import LOGOUT_EVENT, OTHER_RSA_KEY

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
    "expired": {"exp": int(time.time()) - 300},
    "too old": {"iat": int(time.time()) - 3600, "exp": None},
    "from the future": {"iat": int(time.time()) + 300},
}


@pytest.mark.parametrize("attack", WRONG)
async def test_a_wrong_logout_token_is_refused(company: Company, attack: str) -> None:
    signed_in = await company.sign_in()
    answer = await log_out(company, company.idp.logout_token(**{"sub": "erika", "sid": "session-1", **WRONG[attack]}))
    assert (answer.status, answer.body["code"]) == (400, "logout_token_refused"), answer.body
    assert await is_alive(company, signed_in)


async def test_a_forged_logout_token_is_refused(company: Company) -> None:
    signed_in = await company.sign_in()
    company.idp.keys = {"rsa": OTHER_RSA_KEY}
    for token in (company.idp.logout_token(sub="erika"), "x", "a.b.c"):
        answer = await log_out(company, token)
        assert (answer.status, answer.body["code"]) == (400, "logout_token_refused"), answer.body
    assert await is_alive(company, signed_in)


async def test_an_id_token_is_no_logout_token_and_the_reverse(company: Company) -> None:
    signed_in, now = await company.sign_in(), int(time.time())
    claims = {"iss": company.idp.issuer, "aud": "pkgrepo", "sub": "erika", "iat": now, "exp": now + 60, "jti": "1"}
    assert (await log_out(company, company.idp.sign(claims))).status == 400
    company.idp.forge = lambda _: company.idp.logout_token(sub="erika")
    assert (await company.sign_in()).body["code"] == "id_token_refused"
    assert await is_alive(company, signed_in)
