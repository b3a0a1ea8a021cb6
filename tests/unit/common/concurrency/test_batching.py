"""Waiting requests are sent as one batch; batches follow one another."""

import asyncio
from collections.abc import Sequence

import pytest

from common.concurrency.batching import MAX_BATCH, Batcher


class SquareStore:
    """Returns the square of each number after `open` is set, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.problem: Exception | None = None

    async def fetch_all(self, numbers: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(numbers))
        await self.open.wait()
        if self.problem:
            raise self.problem
        return [number * number for number in numbers]


@pytest.fixture
def store() -> SquareStore:
    return SquareStore()


async def submit_all(batcher: Batcher[int, int], numbers: Sequence[int]) -> list[asyncio.Task[int]]:
    """Submitted requests."""
    tasks = [asyncio.create_task(batcher.submit(number)) for number in numbers]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_concurrent_requests_are_one_batch_with_one_result_each(store: SquareStore) -> None:
    batcher = Batcher(store.fetch_all)
    store.open.set()

    assert await asyncio.gather(*(batcher.submit(number) for number in range(50))) == [n * n for n in range(50)]
    assert store.batches == [list(range(50))]


async def test_a_request_never_gets_the_result_of_an_earlier_batch(store: SquareStore) -> None:
    batcher = Batcher(store.fetch_all)
    early = await submit_all(batcher, [1])
    late = await submit_all(batcher, [1, 2])
    assert store.batches == [[1]]

    store.open.set()

    assert await asyncio.gather(*early, *late) == [1, 1, 4]
    assert store.batches == [[1], [1, 2]]


async def test_a_batch_has_a_maximum_size(store: SquareStore) -> None:
    batcher = Batcher(store.fetch_all)
    store.open.set()

    await asyncio.gather(*(batcher.submit(number) for number in range(2 * MAX_BATCH + 1)))

    assert [len(batch) for batch in store.batches] == [MAX_BATCH, MAX_BATCH, 1]


async def test_an_error_reaches_all_waiting_requests_and_no_later_one(store: SquareStore) -> None:
    batcher = Batcher(store.fetch_all)
    store.problem = ConnectionError("away")
    tasks = [*await submit_all(batcher, [1, 2]), *await submit_all(batcher, [3])]
    store.open.set()

    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in results] == [ConnectionError] * 3
    assert store.batches == [[1, 2]]

    store.problem = None
    assert await batcher.submit(4) == 16


async def test_a_cancelled_request_does_not_disturb_others(store: SquareStore) -> None:
    batcher = Batcher(store.fetch_all)
    cancelled, other = await submit_all(batcher, [1, 2])
    cancelled.cancel()
    store.open.set()

    assert await other == 4
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await batcher.submit(3) == 9
