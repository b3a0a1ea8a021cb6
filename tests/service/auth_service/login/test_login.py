"""Login and logout at auth_service (sections 4.1 and 5.1), and the login throttle."""

import asyncio
from collections import Counter
from dataclasses import replace
from ipaddress import IPv6Network

import jwt
import pytest
from argon2 import Parameters, PasswordHasher, extract_parameters

from auth_service.users import throttle_store as throttle
from auth_service.users.service import AT_ONCE
from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT, WINDOW
from common.auth.internal_tokens import Caller
from common.redis import RedisError, open_redis
from tests.support.factories import make_caller
from tests.support.services.auth import (
    PASSWORD,
    UNREACHABLE_REDIS,
    WRONG_PASSWORD,
    Auth,
    from_other_address,
    serving_auth,
    unique_address,
)
from tests.support.tables import each


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    """An unauthenticated caller of a tenant with the user `admin`."""
    return await auth.tenant()


async def test_credentials_open_a_session(auth: Auth, caller: Caller) -> None:
    answer = await auth.login(caller)

    assert (answer.status, list(answer.body)) == (200, ["message"])
    session = await auth.session(caller, answer.body["message"])
    assert session is not None
    assert (session.tenant_id, session.username) == (caller.tenant_id, "admin")


async def test_a_token_lasts_one_hour(auth: Auth, caller: Caller) -> None:
    claims = jwt.decode(await auth.token(caller), options={"verify_signature": False})

    assert claims["exp"] - claims["iat"] == auth.settings.session_lifetime == 3600


async def test_an_unknown_user_gets_the_response_of_a_wrong_password(auth: Auth, caller: Caller) -> None:
    unknown, wrong = await auth.login(caller, "nobody"), await auth.login(caller, password=WRONG_PASSWORD)

    assert (unknown.status, wrong.status, wrong.body["code"]) == (401, 401, "bad_credentials")
    assert wrong.headers["WWW-Authenticate"] == "Bearer"
    assert {**unknown.body, "request_id": ""} == {**wrong.body, "request_id": ""}
    assert unknown.headers.keys() == wrong.headers.keys()


async def test_every_failed_login_costs_the_same_work(
    auth: Auth, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for username in ("ada", "deleted"):
        await auth.add_user(caller, username)
    await auth.call(caller, "DELETE", "delete_user", "deleted")
    cost: list[Parameters] = []
    verify = PasswordHasher.verify

    def counted_verify(hasher: PasswordHasher, stored_hash: str, password: str) -> bool:
        cost.append(extract_parameters(stored_hash))
        return verify(hasher, stored_hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted_verify)
    assert (await auth.login(caller, "ada")).status == 200
    [only] = cost
    for tenant_of_login, username, password in (
        (caller, "nobody", PASSWORD),
        (caller, "ada", WRONG_PASSWORD),
        (caller, "deleted", PASSWORD),
        (await auth.tenant(), "ada", PASSWORD),
    ):
        cost.clear()
        assert (await auth.login(from_other_address(tenant_of_login), username, password)).status == 401
        assert cost == [only], username


async def test_a_password_is_accepted_in_either_normal_form(auth: Auth, caller: Caller) -> None:
    await auth.add_user(caller, "zoe", "une clé très longue")

    assert (await auth.login(caller, "zoe", "une cle\u0301 tre\u0300s longue")).status == 200


@each(
    ("form", "field"),
    [
        ({"password": PASSWORD}, "username"),
        ({"username": "", "password": PASSWORD}, "username"),
        ({"username": "a" * 129, "password": PASSWORD}, "username"),
        ({"username": "ad\0min", "password": PASSWORD}, "username"),
        ({"username[$ne]": "", "password": PASSWORD}, "username"),
        ({"username": "admin"}, "password"),
        ({"username": "admin", "password": ""}, "password"),
        ({"username": "admin", "password": "a" * 1025}, "password"),
        ({"username": "admin", "password[$ne]": ""}, "password"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_login_without_valid_credentials_is_refused(
    auth: Auth, caller: Caller, form: dict[str, str], field: str
) -> None:
    answer = await auth.call(caller, "POST", "login", data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith(f"{field}: ")


@each("username", ["Admin", '{"$ne": ""}', "$where", "admin' || '1'=='1"])
async def test_a_username_is_compared_as_it_is(auth: Auth, caller: Caller, username: str) -> None:
    assert (await auth.login(caller, username)).status == 401


async def test_a_login_in_json_is_refused(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "POST", "login", json={"username": "admin", "password": PASSWORD})

    assert (answer.status, answer.body["code"]) == (400, "invalid_request")


async def test_logout_ends_the_session(auth: Auth, caller: Caller) -> None:
    token = await auth.token(caller)

    answer = await auth.call(caller, "POST", "logout", data={"token": token})

    assert (answer.status, answer.body) == (200, {"message": "Logout Successful!"})
    assert await auth.session(caller, token) is None


@each("token", ["nonsense", "a.b.c", "é", "💣" * 1000])
async def test_logout_of_an_unknown_token_succeeds(auth: Auth, caller: Caller, token: str) -> None:
    answer = await auth.call(caller, "POST", "logout", data={"token": token})

    assert (answer.status, answer.body) == (200, {"message": "Logout Successful!"})


async def test_logout_ends_no_session_of_another_tenant(auth: Auth, caller: Caller) -> None:
    token = await auth.token(caller)

    answer = await auth.call(await auth.tenant(), "POST", "logout", data={"token": token})

    assert answer.status == 200
    assert await auth.session(caller, token)


@each("form", [{}, {"token": ""}, {"token": "a" * 4097}], ids=["missing", "empty", "long"])
async def test_logout_requires_a_token(auth: Auth, caller: Caller, form: dict[str, str]) -> None:
    answer = await auth.call(caller, "POST", "logout", data=form)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "token")


async def test_ten_failures_from_an_address_block_it(auth: Auth, caller: Caller) -> None:
    for number in range(NETWORK_FAILURE_LIMIT):
        await auth.fail_logins(caller, f"user-{number}", times=1)

    answer = await auth.login(caller)

    assert (answer.status, answer.body["code"]) == (429, "too_many_failures")
    assert (await auth.login(from_other_address(caller))).status == 200


async def test_an_ipv6_network_has_the_login_attempts_of_one_address(auth: Auth, caller: Caller) -> None:
    for number, ip in zip(range(NETWORK_FAILURE_LIMIT), IPv6Network((caller.ip, 64), strict=False), strict=False):
        await auth.fail_logins(replace(caller, ip=str(ip)), f"user-{number}", times=1)

    assert (await auth.login(caller)).status == 429


async def test_an_address_counts_for_all_tenants_together(auth: Auth, caller: Caller) -> None:
    await auth.fail_logins(caller)
    other = await auth.tenant()  # with a user of the same name

    assert (await auth.login(replace(other, ip=caller.ip))).status == 429
    assert (await auth.login(other)).status == 200


async def test_failures_count_for_every_replica(auth: Auth, caller: Caller) -> None:
    wrong = {"username": "admin", "password": WRONG_PASSWORD}
    for number in range(NETWORK_FAILURE_LIMIT):
        api = auth.replica if number % 2 else auth.api
        assert (await api.call(caller, "POST", "login", data=wrong)).status == 401

    answers = [await api.call(caller, "POST", "login", data=wrong) for api in (auth.api, auth.replica)]

    assert [answer.status for answer in answers] == [429, 429]


async def test_concurrent_attempts_are_limited_like_sequential_ones(auth: Auth, caller: Caller) -> None:
    answers = await asyncio.gather(*(auth.login(caller, password=WRONG_PASSWORD) for _ in range(30)))

    statuses = Counter(answer.status for answer in answers)
    assert statuses.keys() == {401, 429}
    assert statuses[401] < NETWORK_FAILURE_LIMIT + AT_ONCE


async def test_failures_expire_five_minutes_after_the_first(auth: Auth, caller: Caller, redis_url: str) -> None:
    await auth.fail_logins(caller)
    async with open_redis(redis_url) as redis:
        network = IPv6Network((caller.ip, 64), strict=False)
        names = [
            f"failures:address:{network}",
            f"failures:place:{caller.tenant_id}:{network}:admin",
            f"failures:user:{caller.tenant_id}:admin",
        ]
        assert all([0 < await redis.ttl(name) <= WINDOW for name in names])
        for name in names:
            await redis.expire(name, 0)  # five minutes later

    assert (await auth.login(caller)).status == 200


async def test_many_users_can_sign_in_at_once(auth: Auth, caller: Caller) -> None:
    answers = await asyncio.gather(*(auth.login(caller) for _ in range(20)))

    assert {answer.status for answer in answers} == {200}


async def test_login_and_logout_are_in_the_audit_log(auth: Auth, caller: Caller) -> None:
    await auth.fail_logins(caller, "mallory", times=1)
    token = await auth.token(caller)
    await auth.call(caller, "POST", "logout", data={"token": token})

    log = await auth.audit_log(caller)
    entries = [(entry["operation"], entry["user"], entry["status"]) for entry in log]
    assert entries == [("logout", "admin", 200), ("login", "admin", 200), ("login", "mallory", 401)]
    assert [secret for secret in (PASSWORD, WRONG_PASSWORD, token) if secret in str(log)] == []


async def logouts(auth: Auth, caller: Caller) -> int:
    """The number of logouts in the audit log."""
    return len(await auth.audit_log(caller, operation="logout"))


async def test_a_repeated_logout_leaves_no_entry(auth: Auth, caller: Caller) -> None:
    token = await auth.token(caller)
    answers = [await auth.call(caller, "POST", "logout", data={"token": token}) for _ in range(3)]

    assert [(answer.status, answer.body) for answer in answers] == [(200, {"message": "Logout Successful!"})] * 3
    assert await logouts(auth, caller) == 1


async def test_a_deleted_users_token_leaves_no_entry(auth: Auth, caller: Caller) -> None:
    await auth.add_user(caller, "zed")
    token = await auth.token(caller, "zed")
    await auth.call(caller, "DELETE", "delete_user", "zed")

    answer = await auth.call(caller, "POST", "logout", data={"token": token})

    assert (answer.status, await logouts(auth, caller)) == (200, 0)


async def test_concurrent_logouts_of_a_session_leave_one_entry(auth: Auth, caller: Caller) -> None:
    token = {"token": await auth.token(caller)}

    await asyncio.gather(*(api.call(caller, "POST", "logout", data=token) for api in (auth.api, auth.replica) * 5))

    assert await logouts(auth, caller) == 1


@pytest.mark.parametrize(
    "step", ["auth_service.audit.store.MongoAuditStore.add", "common.auth.sessions.Sessions.close"]
)
async def test_a_logout_repeated_after_a_fault_leaves_one_entry(
    auth: Auth, caller: Caller, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    token = await auth.token(caller)
    with monkeypatch.context() as patched:
        patched.setattr(step, _fail)
        assert (await auth.call(caller, "POST", "logout", data={"token": token})).status == 500

    assert (await auth.call(caller, "POST", "logout", data={"token": token})).status == 200

    assert (await logouts(auth, caller), await auth.session(caller, token)) == (1, None)


async def _fail(*_: object) -> None:
    raise RedisError("a fault of this test")


async def test_throttled_logins_are_in_the_audit_log(auth: Auth, caller: Caller) -> None:
    await auth.fail_logins(caller)
    for api in (auth.api, auth.replica):
        await replace(auth, api=api).login(caller)
    await auth.login(caller, "mallory")

    entries = [(entry["user"], entry["status"], entry["ip"]) for entry in await auth.audit_log(caller, limit=4)]
    expected = [("mallory", 429), ("admin", 429), ("admin", 429), ("admin", 401)]
    assert entries == [(user, status, caller.ip) for user, status in expected]


async def test_audit_entries_of_throttled_logins_are_limited_per_minute(
    auth: Auth, caller: Caller, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "RECORDED_REFUSALS", 3)
    await auth.fail_logins(caller)
    auth_replicas = [replace(auth, api=api) for api in (auth.api, auth.replica)] * 4
    answers = await asyncio.gather(
        *(replica.login(caller, f"user-{number}") for number, replica in enumerate(auth_replicas))
    )
    assert {answer.status for answer in answers} == {429}

    recorded = [entry for entry in await auth.audit_log(caller) if entry["status"] == 429]

    assert len(recorded) == 3
    async with open_redis(redis_url) as redis:
        assert 0 < await redis.ttl(f"failures:refused:{caller.tenant_id}") <= throttle.MINUTE


async def test_without_redis_no_session_begins_or_ends(mongo_url: str, redis_url: str) -> None:
    async with (
        serving_auth(mongo_url, redis_url) as before,
        serving_auth(mongo_url, UNREACHABLE_REDIS, database=before.settings.database) as auth,
    ):
        caller = await before.tenant()
        token = await before.token(caller)
        unknown = jwt.encode({"tenant": caller.tenant_id}, "another key for tests, long enough", "HS256")
        answers = [
            await auth.login(caller),
            await auth.login(caller, password=WRONG_PASSWORD),
            await auth.login(caller, "nobody"),
            await auth.call(caller, "POST", "logout", data={"token": token}),
        ]
        assert (await auth.call(caller, "POST", "logout", data={"token": unknown})).status == 200
        assert await before.session(caller, token)

    assert [(answer.status, answer.body["code"]) for answer in answers] == [(500, "dependency_unavailable")] * 4
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)


async def test_without_mongodb_every_login_is_refused(mongo_url: str, redis_url: str) -> None:
    async with serving_auth(mongo_url, redis_url, mongo_url="mongodb://127.0.0.1:1") as auth:
        answer = await auth.login(make_caller(ip=unique_address()))

    assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable")
    assert int(answer.headers["Retry-After"]) > 0
