"""Concurrency limits, batches of waiting requests, and calls that concurrent callers share."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import pytest

from common.concurrency import batching
from common.concurrency.batching import MAX_BATCH, Batcher, SingleFlight
from common.concurrency.limits import ConcurrencyLimit, FairConcurrencyLimit, loop_timeout
from common.errors import Overloaded
from tests.support.tables import each


async def test_running_tasks_are_limited() -> None:
    concurrency_limit, running, most = ConcurrencyLimit(3), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with concurrency_limit.acquire(60):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    assert (running, most) == (0, 3)


async def test_slots_are_assigned_in_the_order_of_requests() -> None:
    concurrency_limit, order = ConcurrencyLimit(1), []

    async def work(number: int) -> None:
        async with concurrency_limit.acquire(60):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_timeout_in_the_queue_gets_503_with_retry_after() -> None:
    concurrency_limit = ConcurrencyLimit(1)
    async with concurrency_limit.acquire(60):
        with pytest.raises(Overloaded) as refused:
            async with concurrency_limit.acquire(0.01):
                raise AssertionError("the limit was exceeded")
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) > 0


async def test_waiting_tasks_are_limited() -> None:
    concurrency_limit = ConcurrencyLimit(1, waiting=2)
    async with concurrency_limit.acquire(60):
        waiting = [asyncio.ensure_future(concurrency_limit.acquire(60).__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            async with concurrency_limit.acquire(60):
                raise AssertionError("the limit was exceeded")
        waiting.pop().cancel()
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="again"):  # at its timeout, not at once
            async with concurrency_limit.acquire(0.01):
                raise AssertionError("the limit was exceeded")
    await waiting[0]


async def test_a_failed_or_cancelled_task_frees_its_slot() -> None:
    concurrency_limit = ConcurrencyLimit(1)
    with pytest.raises(ValueError, match="theirs"):
        async with concurrency_limit.acquire(60):
            raise ValueError("theirs")
    async with concurrency_limit.acquire(60):
        leaving = asyncio.ensure_future(concurrency_limit.acquire(60).__aenter__())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
    async with concurrency_limit.acquire(60):
        pass


async def test_a_block_over_its_timeout_is_cancelled() -> None:
    with pytest.raises(TimeoutError):
        async with loop_timeout(0.2):
            await asyncio.Event().wait()


async def test_a_delay_of_the_event_loop_is_not_a_timeout() -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    async with loop_timeout(0.3):
        loop.call_later(0.01, arrived.set)
        time.sleep(0.5)  # noqa: ASYNC251  that is the lateness
        await arrived.wait()
        await asyncio.sleep(0)


class Workload:
    """Tasks of tenants that hold a slot until the test ends them."""

    def __init__(self, limit: FairConcurrencyLimit) -> None:
        self.started: list[str] = []
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def begin(self, *names: str) -> None:
        """Start tasks in this order; the first letter of a name is the tenant."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name))
            await asyncio.sleep(0)

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await self._tasks[name]

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait({self._tasks[name]})

    async def _work(self, name: str) -> None:
        async with self._limit.acquire(name[0], 60):
            self.started.append(name)
            await self.ends[name].wait()


@each(
    ("slots", "begun", "at_once", "ended", "started"),
    [
        (2, "a1 a2 b1", "a1 b1", "b1 a1 a2", "a1 b1 a2"),
        (2, "a1 b1 c1 d1", "a1 b1", "a1 b1 c1 d1", "a1 b1 c1 d1"),
        (2, "a1 a2 a3 a4", "a1", "a1 a2 a3 a4", "a1 a2 a3 a4"),
        (1, "a1 a2 a3 a4 b1 b2 c1", "a1", "a1 b1 c1 a2 b2 a3 a4", "a1 b1 c1 a2 b2 a3 a4"),
    ],
    ids=["one slot each", "no more than all slots", "tasks in their order", "the tenant served least recently"],
)
async def test_a_fair_limit_serves_tenants_in_turn(
    slots: int, begun: str, at_once: str, ended: str, started: str
) -> None:
    work = Workload(FairConcurrencyLimit(slots))
    await work.begin(*begun.split())
    assert work.started == at_once.split()
    await work.end(*ended.split())
    assert work.started == started.split()


async def test_a_fair_limit_passes_the_slot_of_a_cancelled_task_on() -> None:
    work = Workload(FairConcurrencyLimit(1))
    await work.begin("a1", "b1", "c1")
    await work.cancel("b1")
    await work.cancel("a1")
    assert work.started == ["a1", "c1"]
    await work.end("c1")


async def test_a_fair_limit_frees_a_slot_that_a_cancelled_task_had_just_got() -> None:
    work = Workload(FairConcurrencyLimit(1))
    await work.begin("a1", "b1", "c1")
    work.ends["a1"].set()
    await asyncio.sleep(0)  # The first task ends and assigns its slot; the second has not run yet.
    await work.cancel("b1")
    assert work.started == ["a1", "c1"]
    await work.end("c1")


async def test_a_fair_limit_refuses_a_task_that_waits_too_long() -> None:
    limit = FairConcurrencyLimit(1)
    with suppress(ValueError):  # A task that fails frees its slot.
        async with limit.acquire("a", 60):
            with pytest.raises(Overloaded):
                async with limit.acquire("b", 0.01):
                    raise AssertionError("there was no slot")
            raise ValueError
    async with limit.acquire("b", 60):
        pass


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


async def test_a_single_caller_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def operation() -> str:
        return "now"

    monkeypatch.setattr(batching, "PAUSE", 3600)
    alone = SingleFlight(operation)
    async with asyncio.timeout(60):
        assert [await alone.run() for _ in range(3)] == ["now"] * 3


async def test_callers_during_a_call_share_the_next_call() -> None:
    numbers, started, let_on = count(1), asyncio.Event(), asyncio.Event()

    async def operation() -> int:
        number = next(numbers)
        started.set()
        await let_on.wait()
        return number

    flight = SingleFlight(operation)
    first = asyncio.create_task(flight.run())
    await started.wait()
    others = [asyncio.create_task(flight.run()) for _ in range(5)]
    await asyncio.sleep(0)
    let_on.set()
    assert [await first, *await asyncio.gather(*others)] == [1, 2, 2, 2, 2, 2]
