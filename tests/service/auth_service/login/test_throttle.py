"""Failed logins are throttled, and an attacker cannot lock a user out."""

from dataclasses import replace
from functools import partial
from ipaddress import IPv6Network

import pytest

from auth_service.users import throttle_store as throttle
from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT, USER_FAILURE_LIMIT, WINDOW
from common.auth.internal_tokens import Caller
from common.auth.sessions import Sessions
from common.redis import Redis
from tests.support.services.auth import WRONG_PASSWORD, Auth, from_other_address
from tests.support.step_faults import Steps


@pytest.fixture
async def home(auth: Auth) -> Caller:
    """The user `admin` of a tenant, at an address where they signed in."""
    caller = await auth.tenant()
    await auth.token(caller)
    return caller


async def is_refused(auth: Auth, caller: Caller, username: str) -> bool:
    return (await auth.login(caller, username, WRONG_PASSWORD)).status == 401


async def fail_from_many_addresses(auth: Auth, caller: Caller, limit: int) -> None:
    """Fail as often as one user may, ten times at each address."""
    for _ in range(0, limit, NETWORK_FAILURE_LIMIT):
        await auth.fail_logins(from_other_address(caller))


def addresses_of(caller: Caller, username: str = "admin") -> str:
    return f"failures:places:{caller.tenant_id}:{username}"


async def test_ten_failures_of_a_user_at_one_address_block_it(auth: Auth, home: Caller, redis: "Redis") -> None:
    elsewhere_user = from_other_address(home)
    await auth.fail_logins(elsewhere_user)
    await redis.delete(f"failures:address:{elsewhere_user.network}")

    answer = await auth.login(elsewhere_user)

    assert (answer.status, answer.body["code"]) == (429, "too_many_failures")
    assert 0 < int(answer.headers["Retry-After"]) <= WINDOW
    assert (await auth.login(elsewhere_user, "nobody")).status == 401


@pytest.mark.parametrize("attacker", ["127.0.0.2", "2001:db8:ffff::1"])
async def test_ten_failures_do_not_block_the_user_at_another_address(auth: Auth, redis: "Redis", attacker: str) -> None:
    user = replace(await auth.tenant(), ip="127.0.0.1")
    attacking_caller = replace(user, ip=attacker)
    for caller in (user, attacking_caller):  # Other tests have failures at these addresses.
        await redis.delete(f"failures:address:{caller.network}")
    await auth.fail_logins(attacking_caller)

    answers = [await auth.login(caller) for caller in (user, attacking_caller)]

    assert [answer.status for answer in answers] == [200, 429]


async def test_failures_of_a_user_at_unknown_addresses_count_together(auth: Auth, home: Caller, low_limit: int) -> None:
    assert USER_FAILURE_LIMIT == 200
    await fail_from_many_addresses(auth, home, low_limit)

    answer = await auth.login(from_other_address(home))

    assert (answer.status, answer.body["code"]) == (429, "too_many_failures")
    assert 0 < int(answer.headers["Retry-After"]) <= WINDOW
    assert (await auth.login(home)).status == 200


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit for one user that needs fewer failures."""
    monkeypatch.setattr(throttle, "USER_FAILURE_LIMIT", 2 * NETWORK_FAILURE_LIMIT)
    return 2 * NETWORK_FAILURE_LIMIT


async def test_a_login_resets_the_failures_of_the_user_at_its_address(auth: Auth, home: Caller, redis: "Redis") -> None:
    await auth.fail_logins(home, times=NETWORK_FAILURE_LIMIT - 1)
    await auth.token(home)
    await redis.delete(f"failures:address:{home.network}")

    await auth.fail_logins(home, times=NETWORK_FAILURE_LIMIT - 1)

    assert (await auth.login(home)).status == 200


async def test_a_login_covers_no_search_for_the_passwords_of_others(auth: Auth, home: Caller) -> None:
    searching = from_other_address(home)
    await auth.fail_logins(searching, "somebody", times=NETWORK_FAILURE_LIMIT - 1)
    await auth.token(searching)

    await auth.fail_logins(searching, "somebody-else", times=1)

    assert (await auth.login(searching, "another", WRONG_PASSWORD)).status == 429


async def test_a_known_ipv6_address_stands_for_its_network(auth: Auth, home: Caller, low_limit: int) -> None:
    await fail_from_many_addresses(auth, home, low_limit)
    neighbour = IPv6Network((home.ip, 64), strict=False)[7]

    assert (await auth.login(replace(home, ip=str(neighbour)))).status == 200


async def test_a_failed_login_sends_the_same_commands_for_all_users(
    auth: Auth, home: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await auth.fail_logins(from_other_address(home), times=1)  # Redis has the scripts from here on.
    steps, counts = Steps(), []
    steps.watch_redis(monkeypatch)
    for caller, username in (
        (home, "admin"),
        (from_other_address(home), "admin"),
        (from_other_address(home), "nobody"),
    ):
        assert await steps.run(partial(is_refused, auth, caller, username))
        counts.append(steps.count)

    assert len(set(counts)) == 1


async def test_the_addresses_of_a_deleted_user_are_deleted(auth: Auth, redis: "Redis") -> None:
    caller = await auth.tenant("admin", "ada")
    await auth.token(caller, "ada")

    await auth.call(caller, "DELETE", "delete_user", "ada")

    assert not await redis.exists(addresses_of(caller, "ada"))


async def test_a_user_deleted_during_a_login_leaves_no_address(
    auth: Auth, redis: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, opens = await auth.tenant("admin", "ada"), Sessions.open

    async def open_late(sessions: Sessions, tenant_id: str, username: str) -> str:
        await auth.users.delete(tenant_id, username)
        return await opens(sessions, tenant_id, username)

    monkeypatch.setattr(Sessions, "open", open_late)
    assert (await auth.login(caller, "ada")).status == 401

    assert not await redis.exists(addresses_of(caller, "ada"))


async def test_a_deletion_repeated_after_any_fault_deletes_the_addresses(
    auth: Auth, redis: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def delete(caller: Caller) -> bool:
        return (await auth.call(caller, "DELETE", "delete_user", "ada")).status == 200

    async def sign_in() -> Caller:
        caller = await auth.tenant("admin", "ada")
        await auth.token(caller, "ada")
        return caller

    assert await delete(await sign_in())  # Redis has the scripts now, so each deletion takes the same steps.
    steps = Steps()
    steps.watch_redis(monkeypatch)
    assert await steps.run(partial(delete, await sign_in()))
    last, successes = steps.count, 0
    for step in range(1, last + 1):
        caller, steps.failing_step = await sign_in(), step

        successes += await steps.run(partial(delete, caller))
        await delete(caller)

        assert not await redis.exists(addresses_of(caller, "ada")), f"step {step}"
    assert successes == 2  # without one of the new versions of the tenant, which is then not cached
