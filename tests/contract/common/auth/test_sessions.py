"""Sessions on a real Redis. Redis commands shift the time, so no test waits (section 5.1)."""

import asyncio
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from common.auth.sessions import Session, SessionCheck, Sessions
from common.auth.signing import ALGORITHM
from common.errors import NotAuthenticated
from common.redis import CONNECTIONS, RedisError, TenantVersions, open_redis
from deploy.local import servers
from gateway.auth.directories import MAX_AGE
from tests.support.factories import KEY, KEYS
from tests.support.tables import each

OTHER_KEY = "another-key-for-tests-long-enough-too"
LIFETIME, IDLE = 3600, 600  # seconds


@pytest.fixture(scope="module")
def sessions(redis: "Redis") -> Sessions:
    return Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE)


@pytest.fixture
def tenant_id() -> str:
    return f"t{uuid4().hex[:12]}"


def redis_key(session: Session) -> str:
    """The Redis key of a session."""
    return f"session:{{{session.tenant_id}:{session.username}}}:{session.session_id}"


async def refused(sessions: Sessions, tenant_id: str, token: str) -> bool:
    try:
        await sessions.check(tenant_id, token)
    except NotAuthenticated:
        return True
    return False


async def test_each_login_opens_a_separate_session(sessions: Sessions, tenant_id: str) -> None:
    first, second = [await sessions.open(tenant_id, "ada") for _ in range(2)]
    session = await sessions.check(tenant_id, first)
    assert (session.tenant_id, session.username) == (tenant_id, "ada")
    for _ in range(2):
        await sessions.close(session)
    assert await refused(sessions, tenant_id, first)
    assert not await refused(sessions, tenant_id, second)


async def test_another_tenants_token_is_refused(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")

    assert await refused(sessions, f"{tenant_id}-2", token)


@pytest.mark.parametrize(("lifetime", "seconds"), [(LIFETIME, IDLE), (60, 60)])
async def test_a_new_session_lasts_its_idle_time_at_most_its_lifetime(
    redis: "Redis", tenant_id: str, lifetime: int, seconds: int
) -> None:
    sessions = Sessions(redis, keys=KEYS, lifetime=lifetime, idle=IDLE)
    session = sessions.parse_token(await sessions.open(tenant_id, "ada"))
    for _ in range(2):
        assert (seconds - 30) * 1000 < await redis.pttl(redis_key(session)) <= seconds * 1000
        assert await sessions.is_alive(session)


async def test_validating_a_session_does_not_renew_it(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    session = await sessions.check(tenant_id, await sessions.open(tenant_id, "ada"))
    await redis.expire(redis_key(session), 5)
    assert await sessions.is_alive(session)
    assert await redis.ttl(redis_key(session)) <= 5
    await sessions.close(session)
    assert not await sessions.is_alive(session)


async def test_a_session_ends_after_its_lifetime(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    key = redis_key(sessions.parse_token(token))
    now, _ = await redis.time()
    await redis.set(key, now, ex=IDLE)

    assert await refused(sessions, tenant_id, token)
    assert await redis.exists(key) == 0


async def pass_time(redis: "Redis", session: Session, seconds: int) -> None:
    """Age a session in Redis by this time."""
    key = redis_key(session)
    ends, remaining = int(await redis.get(key) or 0), await redis.pttl(key)
    await redis.set(key, ends - seconds, px=max(1, remaining - seconds * 1000))
    if remaining <= seconds * 1000:
        await redis.delete(key)


# Stay some seconds away from the end of a session: real time passes too.
PAUSES = st.lists(st.integers(0, 13).map(lambda steps: 50 * steps + 3), max_size=14)


@settings(max_examples=15, derandomize=True)
@given(pauses=PAUSES)
@example(pauses=[53, 653])
@example(pauses=[553] * 7)
async def test_a_session_ends_by_a_long_pause_or_by_its_lifetime(
    sessions: Sessions, redis: "Redis", pauses: list[int]
) -> None:
    token = await sessions.open("acme", uuid4().hex)
    session = sessions.parse_token(token)
    passed = 0
    for pause in pauses:
        passed += pause
        await pass_time(redis, session, pause)
        over = pause > IDLE or passed > LIFETIME
        assert await refused(sessions, "acme", token) is over, (pause, passed)
        if over:
            break


async def test_a_lifetime_uses_the_clock_of_redis(
    redis: "Redis", tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(redis, keys=KEYS, lifetime=60, idle=60)
    now, _ = await redis.time()
    monkeypatch.setattr("common.auth.sessions.time.time", lambda: now + 7200.0)  # The clock of this machine is wrong.

    token = await sessions.open(tenant_id, "ada")

    ends = await redis.get(redis_key(Session(tenant_id, "ada", _claims(token)["jti"], 0)))
    assert now <= int(ends or 0) <= now + 61


async def test_the_sessions_of_one_user_end(sessions: Sessions, tenant_id: str) -> None:
    kept, *own = [await sessions.open(tenant_id, "ada") for _ in range(3)]
    others = [await sessions.open(tenant_id, "adam"), await sessions.open(f"{tenant_id}-2", "ada")]

    await sessions.close_all(tenant_id, "ada", keep=sessions.parse_token(kept).session_id)
    assert [await refused(sessions, tenant_id, token) for token in (kept, *own)] == [False, True, True]

    await sessions.close_all(tenant_id, "ada")
    assert await refused(sessions, tenant_id, kept)
    assert not await refused(sessions, tenant_id, others[0])
    assert not await refused(sessions, f"{tenant_id}-2", others[1])


async def test_ended_sessions_of_a_user_take_no_memory(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    key = f"sessions:{{{tenant_id}:ada}}"
    now, _ = await redis.time()
    await redis.zadd(key, {f"ended-{number}": now - number for number in range(100)})

    await sessions.open(tenant_id, "ada")

    assert await redis.zcard(key) == 1


async def test_a_session_is_listed_for_its_whole_lifetime(redis: "Redis", tenant_id: str) -> None:
    token = await Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE).open(tenant_id, "ada")
    shorter = Sessions(redis, keys=KEYS, lifetime=1, idle=1)  # The setting has changed since.

    await shorter.open(tenant_id, "ada")

    assert await redis.ttl(f"sessions:{{{tenant_id}:ada}}") > LIFETIME - 60
    await shorter.close_all(tenant_id, "ada")
    assert await refused(shorter, tenant_id, token)


async def test_calls_wait_for_a_free_connection(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")

    checked = await asyncio.gather(*(sessions.check(tenant_id, token) for _ in range(CONNECTIONS * 3)))

    assert {session.username for session in checked} == {"ada"}


async def commands(redis: "Redis") -> int:
    """The number of commands sent to Redis."""
    return int((await redis.info("stats"))["total_commands_processed"])


async def test_waiting_checks_share_few_commands_to_redis(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    tokens = [await sessions.open(tenant_id, f"user-{number}") for number in range(20)]
    await sessions.touch(tenant_id)  # Redis has the script now.
    before = await commands(redis)

    touches = [sessions.touch(tenant_id, token) for token in tokens * 10]
    results = await asyncio.gather(*touches, *(sessions.check(tenant_id, token) for token in tokens * 10))

    assert len(results) == 400
    in_the_script = 20 * 2 + 4  # check and use of each session, versions, time, process id
    assert await commands(redis) - before <= in_the_script + 2  # the script and the counting


async def test_each_of_several_batched_checks_gets_its_own_answer(sessions: Sessions, tenant_id: str) -> None:
    tokens = [await sessions.open(tenant_id, f"user-{number}") for number in range(20)]
    for token in tokens[::2]:
        await sessions.close(sessions.parse_token(token))

    checks = await asyncio.gather(*(sessions.touch(tenant_id, token) for token in tokens))

    names = [check.session.username if check.session else None for check in checks]
    assert names == [None if number % 2 == 0 else f"user-{number}" for number in range(20)]


async def test_a_session_ended_by_one_gateway_ends_for_others_at_once(redis: "Redis", tenant_id: str) -> None:
    first, second = [Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE) for _ in range(2)]
    token = await first.open(tenant_id, "ada")
    await asyncio.gather(*(second.check(tenant_id, token) for _ in range(3)))

    await first.close(first.parse_token(token))

    assert await refused(second, tenant_id, token)
    assert (await second.touch(tenant_id, token)).session is None


@pytest.mark.parametrize("is_own", [True, False])
async def test_reading_session_and_version_renews_a_session_of_the_tenant_only(
    sessions: Sessions, redis: "Redis", tenant_id: str, is_own: bool
) -> None:
    token = await sessions.open(tenant_id if is_own else f"{tenant_id}-2", "ada")
    session = sessions.parse_token(token)
    await redis.pexpire(redis_key(session), 60_000)

    assert (await sessions.touch(tenant_id, token)).session == (session if is_own else None)
    assert (await redis.pttl(redis_key(session)) > 60_000) is is_own


@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c", "\udcff.\udcff.\udcff"])
async def test_an_invalid_token_gets_the_tenant_version_only(
    sessions: Sessions, redis: "Redis", tenant_id: str, token: str
) -> None:
    await TenantVersions(redis).bump(tenant_id)

    check = await sessions.touch(tenant_id, token)

    assert (str(check.tenant_version).endswith(str(await redis.get(f"stamp:{tenant_id}"))), check.session) == (
        True,
        None,
    )


async def test_a_tenant_version_changes_with_each_change_only(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    tenant_versions, versions = TenantVersions(redis), []
    for _ in range(3):
        versions += [(await sessions.touch(tenant_id)).tenant_version, (await sessions.touch(tenant_id)).tenant_version]
        await tenant_versions.bump(f"{tenant_id}-2")
        assert (await sessions.touch(tenant_id)).tenant_version == versions[-1]
        await tenant_versions.bump(tenant_id)

    assert versions[::2] == versions[1::2]
    assert len(set(versions)) == 3


async def test_a_tenant_has_no_version_during_a_change_and_a_new_one_after(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    tenant_versions = TenantVersions(redis)
    await tenant_versions.bump(tenant_id)
    before = (await sessions.touch(tenant_id)).tenant_version

    async with tenant_versions.invalidate_access_during(tenant_id):
        assert await sessions.touch(tenant_id) == SessionCheck(None, is_changing=True)
        assert (await sessions.touch(f"{tenant_id}-2")).tenant_version
        assert await redis.ttl(f"stamp:{tenant_id}") > MAX_AGE

    assert (await sessions.touch(tenant_id)).tenant_version not in {before, None}


async def test_a_change_of_packages_leaves_the_version_of_the_access(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    tenant_versions = TenantVersions(redis)
    await tenant_versions.bump(tenant_id)
    before = await sessions.touch(tenant_id)

    async with tenant_versions.invalidate_during(tenant_id):
        assert await sessions.touch(tenant_id) == SessionCheck(None, access_version=before.access_version)
    after = await sessions.touch(tenant_id)
    assert after.access_version == before.access_version
    assert after.tenant_version != before.tenant_version


@pytest.mark.parametrize("method", ["bump", "invalidate_access_during"])
async def test_a_change_of_the_access_moves_both_versions(
    sessions: Sessions, redis: "Redis", tenant_id: str, method: str
) -> None:
    before = await sessions.touch(tenant_id)
    tenant_versions = TenantVersions(redis)
    if method == "bump":
        await tenant_versions.bump(tenant_id)
    else:
        async with tenant_versions.invalidate_access_during(tenant_id):
            pass
    after = await sessions.touch(tenant_id)
    assert before.tenant_version != after.tenant_version
    assert before.access_version != after.access_version


async def test_a_change_does_not_start_if_gateways_cannot_be_notified(redis: "Redis", tenant_id: str) -> None:
    async with open_redis("redis://127.0.0.1:1/0") as unreachable:
        with pytest.raises(RedisError):
            async with TenantVersions(unreachable).invalidate_during(tenant_id):
                pytest.fail("It has begun.")


async def test_a_change_during_a_redis_outage_is_made_and_not_cached(
    sessions: Sessions, redis: "Redis", tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RedisError("away")

    tenant_versions = TenantVersions(redis)
    monkeypatch.setattr(tenant_versions, "_move", fail)

    async with tenant_versions.invalidate_during(tenant_id):
        pass

    assert (await sessions.touch(tenant_id)).tenant_version is None


async def test_a_tenant_version_is_not_valid_after_redis_restarts(tmp_path: Path) -> None:
    versions: list[str | None] = []
    for _ in range(2):
        async with servers.redis(tmp_path) as url, open_redis(url) as redis:
            sessions = Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE)
            if not versions:
                await TenantVersions(redis).bump("changed")
            versions += [(await sessions.touch(tenant_id)).tenant_version for tenant_id in ("changed", "never") * 2]

    assert versions[:2] == versions[2:4]
    assert len(set(versions)) == 4


async def test_ending_a_tenants_sessions_leaves_other_tenants_alone(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    own = [await sessions.open(tenant_id, name) for name in ("ada", "ada", "adam")]
    other = await sessions.open(f"{tenant_id}-2", "ada")

    await sessions.close_tenant(tenant_id)

    assert [await refused(sessions, tenant_id, token) for token in own] == [True, True, True]
    assert not await redis.keys(f"*{{{tenant_id}:*")
    assert not await refused(sessions, f"{tenant_id}-2", other)


def _claims(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


async def forged(sessions: Sessions, tenant_id: str, changes: dict[str, Any], *, key: str = KEY) -> str:
    """An open session's token with other claims; None removes a claim."""
    claims = {**_claims(await sessions.open(tenant_id, "ada")), **changes}
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, key, algorithm=ALGORITHM)


@each(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"iat": None},
        {"iat": 2**40},
        {"jti": None},
        {"jti": "another"},
        {"jti": 5},
        {"sub": None},
        {"sub": "another"},
        {"aud": None},
        {"aud": "catalog_service"},
        {"tenant": None},
        {"tenant": ["acme"]},
    ],
    ids=str,
)
async def test_a_token_with_other_claims_is_refused(
    sessions: Sessions, tenant_id: str, changes: dict[str, Any]
) -> None:
    assert await refused(sessions, tenant_id, await forged(sessions, tenant_id, changes))


async def test_a_token_with_another_signature_is_refused(sessions: Sessions, tenant_id: str) -> None:
    assert await refused(sessions, tenant_id, await forged(sessions, tenant_id, {}, key=OTHER_KEY))
    unsigned = jwt.encode(_claims(await sessions.open(tenant_id, "ada")), "", algorithm="none")
    assert await refused(sessions, tenant_id, unsigned)


@each("token", ["", "nonsense", "a.b.c", "\udcff.\udcff.\udcff", "é" * 50])
async def test_an_invalid_token_is_refused(sessions: Sessions, tenant_id: str, token: str) -> None:
    assert await refused(sessions, tenant_id, token)


@pytest.mark.parametrize("lost", ["its scripts", "our connection"])
async def test_lost_scripts_and_connections_of_redis_are_replaced(
    redis: "Redis", redis_url: str, sessions: Sessions, tenant_id: str, lost: str
) -> None:
    token = await sessions.open(tenant_id, "ada")
    async with open_redis(f"{redis_url}?client_name={tenant_id}") as own_redis:
        own_sessions = Sessions(own_redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE)
        assert (await own_sessions.touch(tenant_id, token)).session
        (client,) = [client for client in await redis.client_list() if client["name"] == tenant_id]

        if lost == "its scripts":
            await redis.script_flush()
        else:
            await redis.client_kill_filter(_id=client["id"])

        assert (await own_sessions.touch(tenant_id, token)).session


async def test_without_redis_every_session_is_refused(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    async with open_redis("redis://127.0.0.1:1/0") as unreachable:
        broken_sessions = Sessions(unreachable, keys=KEYS, lifetime=LIFETIME, idle=IDLE)

        calls = [
            broken_sessions.check(tenant_id, token),
            broken_sessions.touch(tenant_id, token),
            broken_sessions.touch(tenant_id),
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(error, RedisError) for error in results] == [True, True, True]


async def test_a_redis_that_does_not_answer_refuses_every_session(
    sessions: Sessions, tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.redis.ANSWER_TIMEOUT", 0.2)
    token = await sessions.open(tenant_id, "ada")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with asyncio.timeout(60), open_redis(f"redis://127.0.0.1:{silent.getsockname()[1]}/0") as silent_redis:
            with pytest.raises(RedisError):
                await Sessions(silent_redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE).check(tenant_id, token)
