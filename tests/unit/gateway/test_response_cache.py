"""What a service said counts while the stamp stays that was read before it was asked, and for some seconds."""

import asyncio

import pytest

from gateway.caching.response_cache import ResponseCache


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("gateway.caching.response_cache.time", self)

    def monotonic(self) -> float:
        return self.now


class Service:
    """Answers with the number of the question, once it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()
        self.problem: Exception | None = None

    async def answer(self) -> int:
        self.asked += 1
        number = self.asked
        await self.open.wait()
        if self.problem:
            raise self.problem
        return number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def service() -> Service:
    return Service()


def remembered() -> ResponseCache[str, int]:
    return ResponseCache(max_age=30, limit=10)


async def begun(work: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
    for _ in range(5):
        await asyncio.sleep(0)
    return work


async def test_an_answer_counts_while_the_stamp_stays(clock: Clock, service: Service) -> None:
    known = remembered()
    heard = [await known.get_or_fetch("key", stamp, service.answer) for stamp in ("", "", "a", "a", "", "")]
    assert heard == [1, 1, 2, 2, 3, 3]


async def test_an_answer_counts_for_some_seconds_from_the_question(clock: Clock, service: Service) -> None:
    known = remembered()
    service.open.clear()
    (asking,) = await begun([asyncio.create_task(known.get_or_fetch("key", "a", service.answer))])
    clock.now += 29
    service.open.set()
    assert (await asking, await known.get_or_fetch("key", "a", service.answer)) == (1, 1)
    clock.now += 1
    assert await known.get_or_fetch("key", "a", service.answer) == 2


async def test_each_question_has_its_own_answer(clock: Clock, service: Service) -> None:
    known = remembered()
    assert [await known.get_or_fetch(key, "a", service.answer) for key in ("one", "other", "one", "other")] == [
        1,
        2,
        1,
        2,
    ]


async def test_without_a_stamp_nothing_is_remembered(clock: Clock, service: Service) -> None:
    known = remembered()
    heard = [await known.get_or_fetch("key", stamp, service.answer) for stamp in ("a", None, None, "a")]
    assert heard == [1, 2, 3, 1]


async def test_who_asks_while_the_same_is_asked_gets_that_answer(clock: Clock, service: Service) -> None:
    known = remembered()
    service.open.clear()
    same = [asyncio.create_task(known.get_or_fetch("key", "a", service.answer)) for _ in range(5)]
    other = [asyncio.create_task(known.get_or_fetch("key", "b", service.answer))]
    await begun([*same, *other])
    service.open.set()
    assert await asyncio.gather(*same, *other) == [1, 1, 1, 1, 1, 2]


async def test_an_error_is_told_to_all_who_wait_and_not_remembered(clock: Clock, service: Service) -> None:
    known = remembered()
    service.open.clear()
    service.problem = ConnectionError("away")
    waiting = await begun([asyncio.create_task(known.get_or_fetch("key", "a", service.answer)) for _ in range(3)])
    waiting[0].cancel()  # Who asked first may go.
    service.open.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in found] == [asyncio.CancelledError, ConnectionError, ConnectionError]
    assert service.asked == 1
    service.problem = None
    assert await known.get_or_fetch("key", "a", service.answer) == 2
