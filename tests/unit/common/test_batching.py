"""Questions that wait are asked together, one crowd after another."""

import asyncio
from collections.abc import Sequence

import pytest

from common.concurrency.batching import MAX_BATCH, Batcher


class Store:
    """Answers each number with its square once it is let; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.open = asyncio.Event()
        self.problem: Exception | None = None

    async def ask_all(self, numbers: Sequence[int]) -> Sequence[int]:
        self.asked.append(list(numbers))
        await self.open.wait()
        if self.problem:
            raise self.problem
        return [number * number for number in numbers]


@pytest.fixture
def store() -> Store:
    return Store()


async def waiting(gathered: Batcher[int, int], numbers: Sequence[int]) -> list[asyncio.Task[int]]:
    """Questions that have been asked."""
    tasks = [asyncio.create_task(gathered.submit(number)) for number in numbers]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_what_waits_is_asked_at_once_and_answered_each_for_itself(store: Store) -> None:
    gathered = Batcher(store.ask_all)
    store.open.set()

    assert await asyncio.gather(*(gathered.submit(number) for number in range(50))) == [n * n for n in range(50)]
    assert store.asked == [list(range(50))]


async def test_a_question_is_never_answered_by_what_was_asked_before_it(store: Store) -> None:
    gathered = Batcher(store.ask_all)
    early = await waiting(gathered, [1])
    late = await waiting(gathered, [1, 2])
    assert store.asked == [[1]]

    store.open.set()

    assert await asyncio.gather(*early, *late) == [1, 1, 4]
    assert store.asked == [[1], [1, 2]]


async def test_no_more_are_asked_at_once_than_may(store: Store) -> None:
    gathered = Batcher(store.ask_all)
    store.open.set()

    await asyncio.gather(*(gathered.submit(number) for number in range(2 * MAX_BATCH + 1)))

    assert [len(asked) for asked in store.asked] == [MAX_BATCH, MAX_BATCH, 1]


async def test_an_error_is_the_answer_to_all_who_wait_and_to_nobody_later(store: Store) -> None:
    gathered = Batcher(store.ask_all)
    store.problem = ConnectionError("away")
    tasks = [*await waiting(gathered, [1, 2]), *await waiting(gathered, [3])]
    store.open.set()

    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [ConnectionError] * 3
    assert store.asked == [[1, 2]]

    store.problem = None
    assert await gathered.submit(4) == 16


async def test_who_goes_away_disturbs_nobody(store: Store) -> None:
    gathered = Batcher(store.ask_all)
    gone, stays = await waiting(gathered, [1, 2])
    gone.cancel()
    store.open.set()

    assert await stays == 4
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await gathered.submit(3) == 9
