"""auth_service verifies access tokens of Entra ID for the app of a tenant."""

import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.samples.jwt_forgeries import signed_with_public_key, unsigned
from tests.support.servers.entra import APP, CLIENT_ID, DIRECTORY, OTHER_DIRECTORY, Entra, running_entra
from tests.support.services.auth import Auth, serving_auth
from tests.support.tables import every_cell


@dataclass(frozen=True)
class EntraAuth:
    """An auth_service that reads keys from a double of Entra ID, and a tenant with APP."""

    entra: Entra
    auth: Auth
    tenant: Caller

    async def identify(
        self, token: str, rules: Sequence[tuple[str, str]] = (), *, tenant: Caller | None = None
    ) -> Answer:
        form = {"token": token, "rules": rules}
        return await self.auth.call(tenant or self.tenant, "POST", "identify_entra_user", json=form)

    async def status(self, token: str) -> int:
        return (await self.identify(token)).status


@pytest.fixture
async def served(tmp_path: Path, mongo_url: str, redis_url: str) -> AsyncIterator[EntraAuth]:
    async with (
        running_entra(tmp_path) as entra,
        serving_auth(mongo_url, redis_url, entra_authority=entra.authority) as auth,
    ):
        yield EntraAuth(entra, auth, await auth.tenant(entra=APP))


async def test_access_tokens_of_both_versions_are_accepted(served: EntraAuth) -> None:
    for version in (1, 2):
        claims = served.entra.claims(version)
        answer = await served.identify(served.entra.token(claims))
        assert (answer.status, answer.body["ring"]) == (200, "")
        assert claims["exp"] <= answer.body["expires_at"] <= claims["exp"] + 60


async def test_app_roles_and_groups_choose_the_ring(served: EntraAuth) -> None:
    rules = [("group-1", "early"), ("Pilot", "x")]
    rows: list[tuple[list[object], list[object], str, str]] = [
        (["Other", "Pilot"], ["group-1", 7], "pilot", "early"),
        (["Pilot"], [], "pilot", "x"),
        (["Broad"], [], "", ""),
        ([], ["group-1"], "broad", "early"),
        (["", "pilot", "early"], [], "", ""),
    ]
    with every_cell() as cell:
        for roles, groups, by_app, by_rules in rows:
            with cell(roles, groups):
                token = served.entra.token({**served.entra.claims(), "roles": roles, "groups": groups})
                answers = [await served.identify(token), await served.identify(token, rules)]
                assert [answer.body["ring"] for answer in answers] == [by_app, by_rules]


async def test_tokens_with_one_wrong_claim_are_refused(served: EntraAuth) -> None:
    now, entra = int(time.time()), served.entra
    changes: dict[str, tuple[int, dict[str, Any]]] = {
        "a directory that is not listed": (2, {"tid": OTHER_DIRECTORY}),
        "all of another directory": (2, entra.claims(2, OTHER_DIRECTORY)),
        "all of another directory, v1": (1, entra.claims(1, OTHER_DIRECTORY)),
        "a listed directory, issued by another": (2, {"iss": f"{entra.authority}/{OTHER_DIRECTORY}/v2.0"}),
        "a listed directory, issued by another, v1": (1, {"iss": f"https://sts.windows.net/{OTHER_DIRECTORY}/"}),
        "the issuer of the other version": (2, {"iss": f"https://sts.windows.net/{DIRECTORY}/"}),
        "the audience of the other version": (1, {"aud": CLIENT_ID}),
        "the audience of the other version, v2": (2, {"aud": APP.resource}),
        "another audience": (2, {"aud": "00000003-0000-0000-c000-000000000000"}),
        "several audiences": (2, {"aud": [CLIENT_ID, "https://graph.microsoft.com"]}),
        "an unknown version": (2, {"ver": "3.0"}),
        "expired": (2, {"exp": now - 60}),
        "not valid yet": (2, {"nbf": now + 60}),
        "another scope": (2, {"scp": "access.write User.Read"}),
        "no scope, as an ID token": (2, {"scp": None}),
        "no scope, as an app's own token": (2, {"scp": None, "roles": ["Pilot"]}),
        "no directory": (2, {"tid": None}),
        "no end": (2, {"exp": None}),
        "a directory of another type": (2, {"tid": [DIRECTORY]}),
    }

    with every_cell() as cell:
        for label, (version, changed) in changes.items():
            claims = {**entra.claims(version), **changed}
            token = entra.token({name: value for name, value in claims.items() if value is not None})
            answer = await served.identify(token)
            with cell(label):
                assert (answer.status, answer.body.get("code")) == (401, "entra_token_refused"), answer.body


async def test_tokens_that_entra_did_not_sign_are_refused(served: EntraAuth) -> None:
    entra = served.entra
    entra.add_key("private", published=False)
    claims = entra.claims()
    deep = urlsafe_b64encode(b'{"alg":"RS256","kid":' + b"[" * 900 + b"]" * 900 + b"}").rstrip(b"=").decode()
    tokens = {
        "an unsigned token": unsigned(claims, "first"),
        "no signature": entra.token().rpartition(".")[0] + ".",
        "HS256 with the public key": signed_with_public_key(claims, "first", entra.keys["first"]),
        "HS256 with another key": entra.token(key="x" * 32, alg="HS256"),
        "the key of another": entra.token(key=entra.keys["private"]),
        "a key that is not published": entra.token(kid="private"),
        "RS512": entra.token(alg="RS512"),
        "a session": await served.auth.token(served.tenant),
        "an API token": f"pkgr_{'0' * 16}_{'0' * 49}",
        "nothing": "",
        "deep JSON": f"{deep}.{entra.token().split('.')[1]}.",
        "an address of keys in the header": entra.token(key=entra.keys["private"], jku=f"{entra.authority}/evil"),
    }

    with every_cell() as cell:
        for label, token in tokens.items():
            status = await served.status(token)
            with cell(label):
                assert status == 401


class Clock:
    """A clock that tests turn forward."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("auth_service.oidc.client.time", SimpleNamespace(monotonic=clock))
    return clock


async def test_a_new_key_of_entra_is_read(served: EntraAuth, clock: Clock) -> None:
    assert await served.status(served.entra.token()) == 200
    served.entra.add_key("second")
    clock.now += 61
    assert await served.status(served.entra.token(kid="second")) == 200


async def test_unknown_keys_are_looked_up_once_a_minute(served: EntraAuth, clock: Clock) -> None:
    served.entra.add_key("private", published=False)
    for reads in (1, 2):
        for kid in ["first", *["private"] * 5]:
            await served.status(served.entra.token(kid=kid))
        assert served.entra.reads == reads
        clock.now += 61


async def test_known_keys_go_on_while_entra_is_away(served: EntraAuth, clock: Clock) -> None:
    assert await served.status(served.entra.token()) == 200
    served.entra.is_away = True
    clock.now += 3601
    for _ in range(3):
        assert await served.status(served.entra.token()) == 200
        clock.now += 61
    clock.now += 86400
    assert await served.status(served.entra.token()) == 503


async def test_without_keys_nothing_is_accepted(served: EntraAuth, clock: Clock) -> None:
    served.entra.is_away = True
    answer = await served.identify(served.entra.token())
    assert (answer.status, answer.body["code"], answer.headers["Retry-After"]) == (503, "entra_unavailable", "5")
    served.entra.is_away = False
    assert await served.status(served.entra.token()) == 503
    clock.now += 6
    assert await served.status(served.entra.token()) == 200


async def test_a_token_counts_for_tenants_of_its_app_only(served: EntraAuth) -> None:
    token = served.entra.token()
    assert (await served.identify(token, tenant=await served.auth.tenant())).status == 401
    other = replace(APP, client_id=OTHER_DIRECTORY, resource="api://other")
    assert (await served.identify(token, tenant=await served.auth.tenant(entra=other))).status == 401
