"""Sessions on a real Redis. Time is moved by its own commands, so nothing here waits (section 5.1)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from common.auth.sessions import Session, SessionCheck, Sessions
from common.auth.signing import ALGORITHM
from common.caching.tenant_version import TenantVersions
from common.errors import NotAuthenticated
from common.redis import CONNECTIONS, RedisError, open_redis
from deploy.local import servers
from gateway.auth.client_directory import MAX_AGE
from tests.support.factories import KEY, KEYS
from tests.support.tables import each

OTHER_KEY = "another-key-for-tests-long-enough-too"
LIFETIME, IDLE = 3600, 600  # seconds


@pytest.fixture(scope="module")
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    async with open_redis(redis_url) as client:
        yield client


@pytest.fixture(scope="module")
def sessions(redis: "Redis") -> Sessions:
    return Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE)


@pytest.fixture
def tenant_id() -> str:
    return f"t{uuid4().hex[:12]}"


def kept_as(session: Session) -> str:
    """The key under which Redis keeps a session."""
    return f"session:{{{session.tenant_id}:{session.username}}}:{session.session_id}"


async def refused(sessions: Sessions, tenant_id: str, token: str) -> bool:
    try:
        await sessions.check(tenant_id, token)
    except NotAuthenticated:
        return True
    return False


async def test_an_open_session_says_who_it_is(sessions: Sessions, tenant_id: str) -> None:
    session = await sessions.check(tenant_id, await sessions.open(tenant_id, "ada"))

    assert (session.tenant_id, session.username) == (tenant_id, "ada")


async def test_each_login_makes_a_session_of_its_own(sessions: Sessions, tenant_id: str) -> None:
    one, other = [await sessions.open(tenant_id, "ada") for _ in range(2)]

    assert one != other
    await sessions.close(sessions.read(one))
    assert not await refused(sessions, tenant_id, other)


async def test_a_closed_session_is_over(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")

    await sessions.close(sessions.read(token))

    assert await refused(sessions, tenant_id, token)


async def test_closing_twice_changes_nothing(sessions: Sessions, tenant_id: str) -> None:
    session = sessions.read(await sessions.open(tenant_id, "ada"))

    await sessions.close(session)
    await sessions.close(session)


async def test_another_tenants_token_is_refused(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")

    assert await refused(sessions, f"{tenant_id}-2", token)


async def test_a_session_lasts_its_idle_time_at_first(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    session = sessions.read(await sessions.open(tenant_id, "ada"))

    assert 0 < await redis.pttl(kept_as(session)) <= IDLE * 1000


async def test_a_use_gives_the_idle_time_anew(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    key = kept_as(sessions.read(token))
    await redis.pexpire(key, 60_000)  # nine minutes without a use

    await sessions.check(tenant_id, token)

    assert await redis.pttl(key) > 60_000


async def test_asking_whether_a_session_lives_is_no_use_of_it(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    session = await sessions.check(tenant_id, await sessions.open(tenant_id, "ada"))
    await redis.expire(kept_as(session), 5)
    assert await sessions.is_alive(session)
    assert await redis.ttl(kept_as(session)) <= 5
    await sessions.close(session)
    assert not await sessions.is_alive(session)


async def test_a_session_idle_for_too_long_is_over(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    await redis.pexpire(kept_as(sessions.read(token)), 0)

    assert await refused(sessions, tenant_id, token)


async def test_a_use_does_not_take_a_session_past_its_lifetime(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    token = await sessions.open(tenant_id, "ada")
    key = kept_as(sessions.read(token))
    now, _ = await redis.time()
    await redis.set(key, now + 60, ex=30)  # one minute before its hour is over

    await sessions.check(tenant_id, token)

    assert 30_000 < await redis.pttl(key) <= 60_000


async def test_a_session_past_its_lifetime_is_over(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    key = kept_as(sessions.read(token))
    now, _ = await redis.time()
    await redis.set(key, now, ex=IDLE)

    assert await refused(sessions, tenant_id, token)
    assert await redis.exists(key) == 0


async def pass_time(redis: "Redis", session: Session, seconds: int) -> None:
    """Let Redis believe that so much time passed for a session."""
    key = kept_as(session)
    ends, left = int(await redis.get(key) or 0), await redis.pttl(key)
    await redis.set(key, ends - seconds, px=max(1, left - seconds * 1000))
    if left <= seconds * 1000:
        await redis.delete(key)


# Never within a few seconds of what ends a session: real time passes too.
PAUSES = st.lists(st.integers(0, 13).map(lambda steps: 50 * steps + 3), max_size=14)


@settings(max_examples=25, derandomize=True)
@given(pauses=PAUSES)
async def test_a_session_ends_by_a_long_pause_or_by_its_lifetime(
    sessions: Sessions, redis: "Redis", pauses: list[int]
) -> None:
    token = await sessions.open("acme", uuid4().hex)
    session = sessions.read(token)
    passed = 0
    for pause in pauses:
        passed += pause
        await pass_time(redis, session, pause)
        over = pause > IDLE or passed > LIFETIME
        assert await refused(sessions, "acme", token) is over, (pause, passed)
        if over:
            break


async def test_an_idle_time_beyond_the_lifetime_does_not_prolong_it(redis: "Redis", tenant_id: str) -> None:
    sessions = Sessions(redis, keys=KEYS, lifetime=60, idle=3600)
    token = await sessions.open(tenant_id, "ada")

    await sessions.check(tenant_id, token)

    assert 0 < await redis.pttl(kept_as(sessions.read(token))) <= 60_000


async def test_a_lifetime_is_counted_by_the_clock_of_redis(
    redis: "Redis", tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(redis, keys=KEYS, lifetime=60, idle=60)
    now, _ = await redis.time()
    monkeypatch.setattr("common.auth.sessions.time.time", lambda: now + 7200.0)  # this machine's clock is wrong

    token = await sessions.open(tenant_id, "ada")

    ends = await redis.get(kept_as(Session(tenant_id, "ada", _claims(token)["jti"], 0)))
    assert now <= int(ends or 0) <= now + 61


async def test_all_sessions_of_a_user_end_but_one(sessions: Sessions, tenant_id: str) -> None:
    kept, *others = [await sessions.open(tenant_id, "ada") for _ in range(3)]

    await sessions.close_all(tenant_id, "ada", keep=sessions.read(kept).session_id)

    assert not await refused(sessions, tenant_id, kept)
    assert [await refused(sessions, tenant_id, token) for token in others] == [True, True]


async def test_all_sessions_of_a_user_end(sessions: Sessions, tenant_id: str) -> None:
    tokens = [await sessions.open(tenant_id, "ada") for _ in range(2)]

    await sessions.close_all(tenant_id, "ada")

    assert [await refused(sessions, tenant_id, token) for token in tokens] == [True, True]


async def test_ended_sessions_of_a_user_take_no_memory(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    listed = f"sessions:{{{tenant_id}:ada}}"
    now, _ = await redis.time()
    await redis.zadd(listed, {f"ended-{number}": now - number for number in range(100)})

    await sessions.open(tenant_id, "ada")

    assert await redis.zcard(listed) == 1


async def test_a_session_is_known_of_for_as_long_as_it_may_live(redis: "Redis", tenant_id: str) -> None:
    token = await Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE).open(tenant_id, "ada")
    shorter = Sessions(redis, keys=KEYS, lifetime=1, idle=1)  # the setting was changed since

    await shorter.open(tenant_id, "ada")

    assert await redis.ttl(f"sessions:{{{tenant_id}:ada}}") > LIFETIME - 60
    await shorter.close_all(tenant_id, "ada")
    assert await refused(shorter, tenant_id, token)


async def test_many_more_calls_than_connections_wait_their_turn(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")

    checked = await asyncio.gather(*(sessions.check(tenant_id, token) for _ in range(CONNECTIONS * 3)))

    assert {session.username for session in checked} == {"ada"}


async def commands(redis: "Redis") -> int:
    """How many commands Redis has been sent."""
    return int((await redis.info("stats"))["total_commands_processed"])


async def test_checks_that_wait_together_cost_redis_few_commands(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    tokens = [await sessions.open(tenant_id, f"user-{number}") for number in range(20)]
    await sessions.touch(tenant_id)  # Redis has the script from here on.
    before = await commands(redis)

    looks = [sessions.touch(tenant_id, token) for token in tokens * 10]
    found = await asyncio.gather(*looks, *(sessions.check(tenant_id, token) for token in tokens * 10))

    assert len(found) == 400
    in_the_script = 20 * 2 + 3  # a look and a use of each session, the stamp, the time, which process this is
    assert await commands(redis) - before <= in_the_script + 2  # the script, and the counting


async def test_of_checks_that_wait_together_each_gets_its_own_answer(sessions: Sessions, tenant_id: str) -> None:
    tokens = [await sessions.open(tenant_id, f"user-{number}") for number in range(20)]
    for token in tokens[::2]:
        await sessions.close(sessions.read(token))

    found = await asyncio.gather(*(sessions.touch(tenant_id, token) for token in tokens))

    names = [look.session.username if look.session else None for look in found]
    assert names == [None if number % 2 == 0 else f"user-{number}" for number in range(20)]


async def test_a_session_that_one_gateway_ends_is_over_at_once_for_another(redis: "Redis", tenant_id: str) -> None:
    one, other = [Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE) for _ in range(2)]
    token = await one.open(tenant_id, "ada")
    await asyncio.gather(*(other.check(tenant_id, token) for _ in range(3)))

    await one.close(one.read(token))

    assert await refused(other, tenant_id, token)
    assert (await other.touch(tenant_id, token)).session is None


async def test_a_look_uses_a_session_as_a_check_does(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    key = kept_as(sessions.read(token))
    await redis.pexpire(key, 60_000)

    assert (await sessions.touch(tenant_id, token)).session == sessions.read(token)
    assert await redis.pttl(key) > 60_000


async def test_a_look_shows_no_session_of_another_tenant(sessions: Sessions, redis: "Redis", tenant_id: str) -> None:
    token = await sessions.open(f"{tenant_id}-2", "ada")
    key = kept_as(sessions.read(token))
    await redis.pexpire(key, 60_000)

    assert (await sessions.touch(tenant_id, token)).session is None
    assert await redis.pttl(key) <= 60_000


@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c", "\udcff.\udcff.\udcff"])
async def test_a_look_with_what_is_no_token_shows_the_stamp_alone(
    sessions: Sessions, redis: "Redis", tenant_id: str, token: str
) -> None:
    await TenantVersions(redis).bump(tenant_id)

    look = await sessions.touch(tenant_id, token)

    assert (str(look.stamp).endswith(str(await redis.get(f"stamp:{tenant_id}"))), look.session) == (True, None)


async def test_a_tenants_stamp_changes_with_each_change_only(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    stamps, seen = TenantVersions(redis), []
    for _ in range(3):
        seen += [(await sessions.touch(tenant_id)).stamp, (await sessions.touch(tenant_id)).stamp]
        await stamps.bump(f"{tenant_id}-2")
        assert (await sessions.touch(tenant_id)).stamp == seen[-1]
        await stamps.bump(tenant_id)

    assert seen[::2] == seen[1::2]
    assert len(set(seen)) == 3


async def test_while_a_tenant_is_being_changed_it_has_no_stamp_and_then_another(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    stamps = TenantVersions(redis)
    await stamps.bump(tenant_id)
    before = (await sessions.touch(tenant_id)).stamp

    async with stamps.invalidate_during(tenant_id):
        assert await sessions.touch(tenant_id) == SessionCheck(None, changing=True)
        assert (await sessions.touch(f"{tenant_id}-2")).stamp
        assert await redis.ttl(f"stamp:{tenant_id}") > MAX_AGE

    assert (await sessions.touch(tenant_id)).stamp not in {before, None}


async def test_a_change_that_cannot_be_told_of_is_not_begun(redis: "Redis", tenant_id: str) -> None:
    async with open_redis("redis://127.0.0.1:1/0") as nobody:
        with pytest.raises(RedisError):
            async with TenantVersions(nobody).invalidate_during(tenant_id):
                pytest.fail("It has begun.")


async def test_a_change_during_an_outage_of_redis_is_done_and_not_cached(
    sessions: Sessions, redis: "Redis", tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise RedisError("away")

    stamps = TenantVersions(redis)
    monkeypatch.setattr(stamps, "move", away)

    async with stamps.invalidate_during(tenant_id):
        pass

    assert (await sessions.touch(tenant_id)).stamp is None


async def test_no_stamp_counts_past_the_redis_that_told_it(tmp_path: Path) -> None:
    told: list[str | None] = []
    for _ in range(2):
        async with servers.redis(tmp_path) as url, open_redis(url) as redis:
            looks = Sessions(redis, keys=KEYS, lifetime=LIFETIME, idle=IDLE)
            if not told:
                await TenantVersions(redis).bump("changed")
            told += [(await looks.touch(tenant_id)).stamp for tenant_id in ("changed", "never") * 2]

    assert told[:2] == told[2:4]
    assert len(set(told)) == 4


async def test_ending_a_users_sessions_leaves_others_alone(sessions: Sessions, tenant_id: str) -> None:
    other_user = await sessions.open(tenant_id, "adam")
    other_tenant = await sessions.open(f"{tenant_id}-2", "ada")

    await sessions.close_all(tenant_id, "ada")

    assert not await refused(sessions, tenant_id, other_user)
    assert not await refused(sessions, f"{tenant_id}-2", other_tenant)


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
    """A token like that of an open session, with other claims; None takes one away."""
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


async def test_a_token_of_another_key_is_refused(sessions: Sessions, tenant_id: str) -> None:
    assert await refused(sessions, tenant_id, await forged(sessions, tenant_id, {}, key=OTHER_KEY))


@each("token", ["", "nonsense", "a.b.c", "\udcff.\udcff.\udcff", "é" * 50])
async def test_what_is_no_token_is_refused(sessions: Sessions, tenant_id: str, token: str) -> None:
    assert await refused(sessions, tenant_id, token)


async def test_a_token_without_a_signature_is_refused(sessions: Sessions, tenant_id: str) -> None:
    claims = _claims(await sessions.open(tenant_id, "ada"))

    assert await refused(sessions, tenant_id, jwt.encode(claims, "", algorithm="none"))


async def test_a_session_that_redis_does_not_know_is_over_whatever_its_signature(
    sessions: Sessions, redis: "Redis", tenant_id: str
) -> None:
    token = await sessions.open(tenant_id, "ada")
    await redis.delete(kept_as(sessions.read(token)))

    assert await refused(sessions, tenant_id, token)


@pytest.mark.parametrize("lost", ["its scripts", "our connection"])
async def test_what_redis_loses_of_ours_is_made_good(
    redis: "Redis", redis_url: str, sessions: Sessions, tenant_id: str, lost: str
) -> None:
    token = await sessions.open(tenant_id, "ada")
    async with open_redis(f"{redis_url}?client_name={tenant_id}") as ours:
        looks = Sessions(ours, keys=KEYS, lifetime=LIFETIME, idle=IDLE)
        assert (await looks.touch(tenant_id, token)).session
        (client,) = [client for client in await redis.client_list() if client["name"] == tenant_id]

        if lost == "its scripts":
            await redis.script_flush()
        else:
            await redis.client_kill_filter(_id=client["id"])

        assert (await looks.touch(tenant_id, token)).session


async def test_where_redis_is_away_nobody_is_let_in(sessions: Sessions, tenant_id: str) -> None:
    token = await sessions.open(tenant_id, "ada")
    async with open_redis("redis://127.0.0.1:1/0") as nobody:
        away = Sessions(nobody, keys=KEYS, lifetime=LIFETIME, idle=IDLE)

        asked = [away.check(tenant_id, token), away.touch(tenant_id, token), away.touch(tenant_id)]
        found = await asyncio.gather(*asked, return_exceptions=True)

        assert [isinstance(error, RedisError) for error in found] == [True, True, True]


async def test_where_redis_does_not_answer_nobody_is_let_in(
    sessions: Sessions, tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.redis.ANSWER_TIMEOUT", 0.2)
    token = await sessions.open(tenant_id, "ada")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with asyncio.timeout(60), open_redis(f"redis://127.0.0.1:{silent.getsockname()[1]}/0") as nobody:
            with pytest.raises(RedisError):
                await Sessions(nobody, keys=KEYS, lifetime=LIFETIME, idle=IDLE).check(tenant_id, token)
