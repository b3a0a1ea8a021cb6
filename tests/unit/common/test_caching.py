"""Caches never grow past their limits, and share one fetch of a key among callers."""

import asyncio

import pytest

from common.caching import FifoCache, ResponseCache
from tests.support.clock import Clock


def test_the_oldest_value_is_evicted_at_the_limit() -> None:
    memory: FifoCache[int, str] = FifoCache(3)
    for number in (0, 1, 2, 0, 3):
        memory.put(number, str(number))
    assert [memory.get(number) for number in range(4)] == ["0", None, "2", "3"]


def test_a_large_value_evicts_as_many_values_as_necessary() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "xxxx"), ("b", "xxxx"), ("c", "xxxx"), ("a", "x" * 6)):
        memory.put(name, text)
    assert [memory.get(name) for name in "abc"] == ["x" * 6, None, "xxxx"]
    memory.put("b", "x" * 10)
    assert [memory.get(name) for name in "abc"] == [None, "x" * 10, None]


def test_a_too_large_value_removes_only_the_value_it_replaces() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "x"), ("b", "xx"), ("a", "x" * 11)):
        memory.put(name, text)
    assert (memory.get("a"), memory.get("b")) == (None, "xx")
    memory.clear()
    memory.put("c", "x" * 10)
    assert (memory.get("b"), memory.get("c")) == (None, "x" * 10)


class Service:
    """Returns the number of the call after the test opens it."""

    def __init__(self) -> None:
        self.call_count = 0
        self.open = asyncio.Event()
        self.open.set()
        self.problem: Exception | None = None

    async def answer(self) -> int:
        self.call_count += 1
        number = self.call_count
        await self.open.wait()
        if self.problem:
            raise self.problem
        return number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("common.caching.time", clock)
    return clock


@pytest.fixture
def service() -> Service:
    return Service()


def cache_of_ten() -> ResponseCache[str, int]:
    return ResponseCache(max_age=30, limit=10)


async def start_fetch(work: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
    for _ in range(5):
        await asyncio.sleep(0)
    return work


@pytest.mark.parametrize(
    ("without_version", "versions", "expected"),
    [
        (False, ["", "", "a", "a", "", ""], [1, 1, 2, 2, 3, 3]),
        (False, ["a", None, None, "a"], [1, 2, 3, 1]),
        (True, ["a", None, None, "a", "b", None], [1, 1, 1, 1, 2, 2]),
        (True, [None, None, "a", "a"], [1, 1, 2, 2]),
    ],
)
async def test_a_value_is_valid_while_the_version_stays(
    clock: Clock, service: Service, without_version: bool, versions: list[str | None], expected: list[int]
) -> None:
    cache: ResponseCache[str, int] = ResponseCache(max_age=30, limit=10, without_version=without_version)
    assert [await cache.get_or_fetch("key", version, service.answer) for version in versions] == expected
    assert await cache.get_or_fetch("another key", versions[-1], service.answer) == max(expected) + 1


async def test_the_maximum_age_counts_from_the_start_of_the_fetch(clock: Clock, service: Service) -> None:
    cache = cache_of_ten()
    service.open.clear()
    (asking,) = await start_fetch([asyncio.create_task(cache.get_or_fetch("key", "a", service.answer))])
    clock.now += 29
    service.open.set()
    assert (await asking, await cache.get_or_fetch("key", "a", service.answer)) == (1, 1)
    clock.now += 1
    assert await cache.get_or_fetch("key", "a", service.answer) == 2


async def test_concurrent_fetches_of_a_key_and_version_share_one_request(clock: Clock, service: Service) -> None:
    cache = cache_of_ten()
    service.open.clear()
    same = [asyncio.create_task(cache.get_or_fetch("key", "a", service.answer)) for _ in range(5)]
    other = [asyncio.create_task(cache.get_or_fetch("key", "b", service.answer))]
    await start_fetch([*same, *other])
    service.open.set()
    assert await asyncio.gather(*same, *other) == [1, 1, 1, 1, 1, 2]


async def test_another_caller_fetches_if_the_fetching_one_is_cancelled(clock: Clock, service: Service) -> None:
    cache = cache_of_ten()
    service.open.clear()
    waiting = await start_fetch([asyncio.create_task(cache.get_or_fetch("key", "a", service.answer)) for _ in range(4)])
    waiting[0].cancel()
    waiting[2].cancel()
    await start_fetch(waiting)
    service.open.set()
    first, second, third, fourth = await asyncio.gather(*waiting, return_exceptions=True)
    assert (type(first), second, type(third), fourth) == (asyncio.CancelledError, 2, asyncio.CancelledError, 2)
    assert service.call_count == 2


async def test_an_error_reaches_all_waiting_callers_and_is_not_cached(clock: Clock, service: Service) -> None:
    cache = cache_of_ten()
    service.open.clear()
    service.problem = ConnectionError("away")
    waiting = await start_fetch([asyncio.create_task(cache.get_or_fetch("key", "a", service.answer)) for _ in range(3)])
    waiting[1].cancel()  # A caller who waits may be cancelled.
    service.open.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in results] == [ConnectionError, asyncio.CancelledError, ConnectionError]
    assert service.call_count == 1
    service.problem = None
    assert await cache.get_or_fetch("key", "a", service.answer) == 2
