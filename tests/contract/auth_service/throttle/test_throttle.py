"""The login throttle on a real Redis. Redis commands shift the time, so no test waits."""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from auth_service.users import throttle_store as throttle
from auth_service.users.throttle_store import (
    KNOWN_FOR,
    KNOWN_NETWORKS,
    RedisFailureCounts,
    RedisKnownNetworks,
    Throttle,
    TooManyFailures,
)
from tests.support.services.auth import unique_address

ADDRESS = "192.0.2.1"


@pytest.fixture(scope="module")
def known_networks(redis: "Redis") -> RedisKnownNetworks:
    return RedisKnownNetworks(redis)


@pytest.fixture
def tenant_id() -> str:
    return f"t{uuid4().hex[:12]}"


async def pass_time(redis: "Redis", tenant_id: str, seconds: int) -> None:
    """Make all logins of `ada` this much older."""
    key = f"failures:places:{tenant_id}:ada"
    for ip in await redis.zrange(key, 0, -1):
        await redis.zincrby(key, -seconds, str(ip))


@pytest.mark.parametrize(("seconds", "is_known"), [(0, True), (KNOWN_FOR - 3600, True), (KNOWN_FOR + 1, False)])
async def test_an_address_is_known_for_thirty_days(
    known_networks: RedisKnownNetworks, redis: "Redis", tenant_id: str, seconds: int, is_known: bool
) -> None:
    await known_networks.add(tenant_id, "ada", ADDRESS)

    await pass_time(redis, tenant_id, seconds)

    assert await known_networks.contains(tenant_id, "ada", ADDRESS) is is_known


async def test_a_login_restarts_the_thirty_days_and_removes_older_addresses(
    known_networks: RedisKnownNetworks, redis: "Redis", tenant_id: str
) -> None:
    await known_networks.add(tenant_id, "ada", "192.0.2.2")
    await pass_time(redis, tenant_id, 7200)
    for _ in range(2):
        await known_networks.add(tenant_id, "ada", ADDRESS)
        await pass_time(redis, tenant_id, KNOWN_FOR - 3600)

    assert await known_networks.contains(tenant_id, "ada", ADDRESS)
    assert KNOWN_FOR - 3600 < await redis.ttl(f"failures:places:{tenant_id}:ada") <= KNOWN_FOR
    await known_networks.add(tenant_id, "ada", ADDRESS)
    assert await redis.zrange(f"failures:places:{tenant_id}:ada", 0, -1) == [ADDRESS]


async def test_the_most_recent_addresses_of_a_user_are_known(
    known_networks: RedisKnownNetworks, tenant_id: str
) -> None:
    # The logins are in another order than the addresses.
    used = [f"192.0.2.{number}" for number in reversed(range(KNOWN_NETWORKS + 1))]
    for ip in used:
        await known_networks.add(tenant_id, "ada", ip)

    assert [ip for ip in used if await known_networks.contains(tenant_id, "ada", ip)] == used[1:]


async def test_an_address_is_known_for_one_user_of_one_tenant(
    known_networks: RedisKnownNetworks, tenant_id: str
) -> None:
    await known_networks.add(tenant_id, "ada", ADDRESS)

    assert not await known_networks.contains(tenant_id, "helga", ADDRESS)
    assert not await known_networks.contains(f"{tenant_id}-2", "ada", ADDRESS)


@pytest.mark.parametrize(("whole_tenant", "known"), [(False, [False, True, True]), (True, [False, False, True])])
async def test_the_addresses_of_a_user_or_a_tenant_can_be_deleted(
    known_networks: RedisKnownNetworks, tenant_id: str, whole_tenant: bool, known: list[bool]
) -> None:
    users = [(tenant_id, "ada"), (tenant_id, "helga"), (f"{tenant_id}-2", "ada")]
    for user in users:
        await known_networks.add(*user, ADDRESS)

    if whole_tenant:
        await known_networks.forget_tenant(tenant_id)
    else:
        await known_networks.forget(tenant_id, "ada")

    assert [await known_networks.contains(*user, ADDRESS) for user in users] == known


async def test_usernames_that_look_like_addresses_have_separate_counts(redis: "Redis", tenant_id: str) -> None:
    login_throttle = Throttle(RedisFailureCounts(redis), RedisKnownNetworks(redis))
    for _ in range(throttle.NETWORK_FAILURE_LIMIT):
        await login_throttle.count_failure(tenant_id, "2001:db8::/64:ada", "2001:db8:1::1")
    await redis.delete("failures:address:2001:db8:1::/64")

    for username, ip in (("ada", "2001:db8:1::1"), ("ada", "2001:db8::1"), ("/64:2001:db8::/64:ada", "2001:db8:1::1")):
        await login_throttle.check(tenant_id, username, ip)


@pytest.fixture(scope="module")
def low_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(throttle, "NETWORK_FAILURE_LIMIT", 3)
        patched.setattr(throttle, "USER_FAILURE_LIMIT", 5)
        yield


class Model:
    """A model of the throttle: one count for each limit."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.known: set[tuple[str, str]] = set()

    def _keys(self, user: str, ip: str) -> list[tuple[str, ...]]:
        return [(ip,), (user, ip), ("known" if (user, ip) in self.known else "other", user)]

    def refuses(self, user: str, ip: str) -> bool:
        limits = (throttle.NETWORK_FAILURE_LIMIT, throttle.NETWORK_FAILURE_LIMIT, throttle.USER_FAILURE_LIMIT)
        return any(self.counts[key] >= limit for key, limit in zip(self._keys(user, ip), limits, strict=True))

    def fail(self, user: str, ip: str) -> None:
        self.counts.update(self._keys(user, ip))

    def succeed(self, user: str, ip: str) -> None:
        self.known.add((user, ip))
        del self.counts[user, ip]


LOGINS = st.lists(st.tuples(st.sampled_from(["ada", "helga"]), st.integers(0, 3), st.booleans()), max_size=40)


@settings(max_examples=40, derandomize=True)
@given(logins=LOGINS)
async def test_logins_are_refused_at_the_limits(
    redis: "Redis", low_limits: None, logins: list[tuple[str, int, bool]]
) -> None:
    real, model = Throttle(RedisFailureCounts(redis), RedisKnownNetworks(redis)), Model()
    tenant_id, addresses = f"t{uuid4().hex[:12]}", [unique_address() for _ in range(4)]
    for username, number, is_right in logins:
        login = (username, addresses[number])
        if model.refuses(*login):
            with pytest.raises(TooManyFailures):
                await real.check(tenant_id, *login)
            continue
        await real.check(tenant_id, *login)
        if is_right:
            await real.count_success(tenant_id, *login)
            model.succeed(*login)
        else:
            await real.count_failure(tenant_id, *login)
            model.fail(*login)
