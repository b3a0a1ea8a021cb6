"""Attacks on a sign-in with an identity provider, and the answer that each gets."""

import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from aiohttp import web
from jwt.algorithms import RSAAlgorithm

from auth_service.users.login import Login
from auth_service.users.store import User
from common.auth.internal_tokens import Caller
from tests.service.auth_service.oidc.conftest import Company
from tests.support.samples.jwt_forgeries import signed_with_public_key, unsigned
from tests.support.services.auth import from_other_address
from tests.support.services.identity_provider import CLIENT_ID, OTHER_RSA_KEY, RSA_KEY, current, from_now
from tests.support.tables import each

CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "https://evil.example.com"}, "id_token_refused"),
    "no issuer": ({"iss": None}, "id_token_refused"),
    "another audience": ({"aud": "other"}, "id_token_refused"),
    "two audiences without azp": ({"aud": [CLIENT_ID, "other"]}, "id_token_refused"),
    "another azp": ({"azp": "other"}, "id_token_refused"),
    "another nonce": ({"nonce": "other"}, "id_token_refused"),
    "no nonce": ({"nonce": None}, "id_token_refused"),
    "another access token": ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "id_token_refused"),
    "no end": ({"exp": None}, "id_token_refused"),
    "no subject": ({"sub": None}, "id_token_refused"),
    "an empty subject": ({"sub": ""}, "id_token_refused"),
    "a subject of another kind": ({"sub": {"$ne": ""}}, "id_token_refused"),
    "a long subject": ({"sub": "s" * 256}, "id_token_refused"),
    "a clock five minutes behind": ({"iat": from_now(-900), "exp": from_now(-300)}, "clocks_differ"),
    "a clock five minutes ahead": ({"iat": from_now(300), "exp": from_now(900)}, "clocks_differ"),
    "not valid yet": ({"nbf": from_now(300)}, "clocks_differ"),
}


@each("attack", CLAIMS)
async def test_a_token_with_wrong_claims_is_refused(company: Company, attack: str) -> None:
    claims, code = CLAIMS[attack]
    company.idp.claims = current(claims)
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, code), answer.body
    assert await company.users() == {}


FORGERIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "unsigned": lambda claims: unsigned(claims, "rsa"),
    "HS256 with the public key": lambda claims: signed_with_public_key(claims, "rsa", RSA_KEY),
    "RS256 with the kid of an EC key": lambda claims: jwt.encode(claims, RSA_KEY, "RS256", headers={"kid": "ec"}),
    "another key with a known kid": lambda claims: jwt.encode(claims, OTHER_RSA_KEY, "RS256", headers={"kid": "rsa"}),
    "RS512": lambda claims: jwt.encode(claims, RSA_KEY, "RS512", headers={"kid": "rsa"}),
    "an own key in the header": lambda claims: jwt.encode(
        claims, OTHER_RSA_KEY, "RS256", headers={"kid": "evil", "jku": "https://evil.example.com"}
    ),
    "no kid": lambda claims: jwt.encode(claims, RSA_KEY, "RS256"),
    "a critical header": lambda claims: jwt.encode(claims, RSA_KEY, "RS256", headers={"kid": "rsa", "crit": ["x"]}),
    "no token": lambda _: "x",
}


@each("attack", FORGERIES)
async def test_a_forged_token_is_refused(company: Company, attack: str) -> None:
    company.idp.forge = FORGERIES[attack]
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, "id_token_refused"), answer.body
    assert await company.users() == {}


@each("state", [None, "", "forged", "é\0"])
async def test_a_state_that_is_missing_or_forged_is_refused(company: Company, state: str | None) -> None:
    begun = await company.begin()
    answer = company.idp.sign_in(begun["url"]) | {"state": state or ""}
    if state is None:
        del answer["state"]
    refused = await company.finish(answer, begun["browser"])
    assert (refused.status, refused.body["code"]) == (403, "sign_in_expired")
    assert "/token" not in company.idp.calls


async def test_a_state_of_another_browser_is_refused(company: Company) -> None:
    attacker, victim = await company.begin(), await company.begin()
    for browser in (victim["browser"], "", "é"):
        answer = company.idp.sign_in(attacker["url"])
        refused = await company.finish(answer, browser, from_other_address(company.caller))
        assert (refused.status, refused.body["code"]) == (403, "sign_in_expired")


async def test_a_state_of_another_tenant_is_refused(company: Company) -> None:
    other = await company.auth.tenant()
    await company.providers.store.put(company.idp.provider(other.tenant_id))
    begun = await company.begin()
    refused = await company.finish(company.idp.sign_in(begun["url"]), begun["browser"], other)
    assert (refused.status, refused.body["code"]) == (403, "sign_in_expired")


async def test_a_callback_counts_once(company: Company) -> None:
    begun = await company.begin()
    answer = company.idp.sign_in(begun["url"])
    assert (await company.finish(answer, begun["browser"])).status == 200
    replayed = await company.finish(answer, begun["browser"])
    assert (replayed.status, replayed.body["code"]) == (403, "sign_in_expired")


async def test_a_replayed_code_is_refused(company: Company) -> None:
    begun = await company.begin()
    used = company.idp.sign_in(begun["url"])
    assert (await company.finish(used, begun["browser"])).status == 200
    answer = await company.sign_in(code=used["code"])
    assert (answer.status, answer.body["code"]) == (403, "refused_by_provider")
    assert answer.body["params"] == {"error": "invalid_grant"}


async def test_a_code_of_another_sign_in_is_refused(company: Company) -> None:
    stolen = company.idp.sign_in((await company.begin())["url"])
    answer = await company.sign_in(code=stolen["code"])  # Its challenge belongs to another verifier.
    assert (answer.status, answer.body["code"]) == (403, "refused_by_provider")


@each("issuer", ["https://evil.example.com", ""])
async def test_the_answer_of_another_provider_is_refused(company: Company, issuer: str) -> None:
    answer = await company.sign_in(iss=issuer)
    assert (answer.status, answer.body["code"]) == (403, "id_token_refused")
    assert "/token" not in company.idp.calls


async def test_a_provider_that_sends_its_issuer_must_send_it(company: Company) -> None:
    begun = await company.begin()
    answer = company.idp.sign_in(begun["url"])
    del answer["iss"]
    assert (await company.finish(answer, begun["browser"])).body["code"] == "id_token_refused"


@each(
    ("error", "shown"),
    [("access_denied", "access_denied"), ("<script>alert(1)</script>", "unknown"), ("e" * 65, "unknown")],
)
async def test_only_the_code_of_a_providers_error_is_shown(company: Company, error: str, shown: str) -> None:
    begun = await company.begin()
    state = company.idp.sign_in(begun["url"])["state"]
    query = {"state": state, "error": error, "error_description": "<b>bad</b>", "iss": company.idp.issuer}
    answer = await company.finish(query, begun["browser"])
    assert (answer.status, answer.body["code"], answer.body["params"]["error"]) == (403, "refused_by_provider", shown)


async def test_a_sign_in_of_a_replaced_provider_is_refused(company: Company) -> None:
    begun = await company.begin()
    provider = company.idp.provider(company.caller.tenant_id)
    await company.providers.store.put(type(provider)(**{**vars(provider), "issuer": "https://other.example.com"}))
    refused = await company.finish(company.idp.sign_in(begun["url"]), begun["browser"])
    assert (refused.status, refused.body["code"]) == (403, "sign_in_expired")


async def test_sign_ins_that_only_begin_are_limited_by_network(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auth_service.users.throttle_store.BEGUN_LIMIT", 2)
    caller = from_other_address(company.caller)
    for _ in range(2):
        await company.begin(caller)
    refused = await company.auth.call(caller, "POST", "begin_sign_in", json={})
    assert (refused.status, refused.body["code"]) == (429, "too_many_failures")
    assert 0 < int(refused.headers["Retry-After"]) <= 600
    await company.begin()


async def test_a_provider_that_is_removed_during_a_sign_in_opens_no_session(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_session = Login.open_session

    async def remove_first(login: Login, caller: Caller, user: User, *, request_id: str) -> str:
        await company.providers.remove(caller.tenant_id)
        opened.append(await open_session(login, caller, user, request_id=request_id))
        return opened[0]

    monkeypatch.setattr(Login, "open_session", remove_first)
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, "sign_in_expired")
    assert await company.auth.session(company.caller, opened[0]) is None


async def test_a_new_key_is_fetched_at_most_once_a_minute(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic()
    monkeypatch.setattr("auth_service.oidc.client.time.monotonic", lambda: clock)
    assert (await company.sign_in()).status == 200
    company.idp.keys = {"rsa-2": OTHER_RSA_KEY}
    company.idp.signer = "rsa-2"
    for _ in range(3):
        assert (await company.sign_in()).body["code"] == "id_token_refused"
    assert company.idp.calls.count("/jwks") == 2  # of the operator's command and of the service
    clock += 61
    assert (await company.sign_in()).status == 200
    assert company.idp.calls.count("/jwks") == 3


async def test_failed_requests_for_a_new_key_are_also_limited(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic()
    monkeypatch.setattr("auth_service.oidc.client.time.monotonic", lambda: clock)
    assert (await company.sign_in()).status == 200
    clock += 61
    company.idp.replies["/jwks"] = lambda _: web.Response(status=500)
    company.idp.keys["rsa-2"], company.idp.signer = OTHER_RSA_KEY, "rsa-2"
    company.idp.calls.clear()
    for _ in range(3):
        await company.sign_in()
    assert company.idp.calls.count("/jwks") == 1
    company.idp.signer = "rsa"
    assert (await company.sign_in()).status == 200


async def test_a_key_that_is_published_with_its_private_part_is_refused(company: Company) -> None:
    company.idp.replies["/jwks"] = lambda _: web.json_response(
        {"keys": [{**RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True), "kid": "rsa"}, company.idp.public_key("ec")]}
    )
    await company.set()
    answer = await company.sign_in()
    assert (answer.status, answer.body["code"]) == (403, "id_token_refused"), answer.body
    company.idp.signer = "ec"
    assert (await company.sign_in()).status == 200


async def test_nothing_of_a_token_reaches_a_log(company: Company, capsys: pytest.CaptureFixture[str]) -> None:
    canary = "canary-4711"
    company.idp.claims = {"name": canary, "email": canary, "sub": canary, "groups": [canary]}
    refused = await company.sign_in()
    company.idp.claims["groups"] = ["Packagers"]
    accepted = await company.sign_in()
    await company.finish({"code": canary, "state": canary, "error": canary}, canary)
    assert (refused.status, accepted.status) == (403, 200)
    printed = "".join(capsys.readouterr())
    assert canary not in printed
    assert accepted.body["token"] not in printed
    assert canary not in json.dumps(await company.auth.audit_log(company.caller))
