"""Concurrency limits: the tasks at once, the order of those that wait, and how long they wait."""

import asyncio
import time

import pytest

from common.concurrency.limits import ConcurrencyLimit, FairConcurrencyLimit, loop_timeout
from common.errors import Overloaded


async def test_no_more_than_so_many_have_their_turn_at_once() -> None:
    turns, running, most = ConcurrencyLimit(3), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with turns.acquire(60):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    assert (running, most) == (0, 3)


async def test_turns_come_in_the_order_of_asking() -> None:
    turns, order = ConcurrencyLimit(1), []

    async def work(number: int) -> None:
        async with turns.acquire(60):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_whose_turn_does_not_come_is_told_when_to_come_again() -> None:
    turns = ConcurrencyLimit(1)
    async with turns.acquire(60):
        with pytest.raises(Overloaded) as refused:
            async with turns.acquire(0.01):
                raise AssertionError("it was not one's turn")
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) > 0


async def test_no_more_than_so_many_wait_for_their_turn() -> None:
    turns = ConcurrencyLimit(1, waiting=2)
    async with turns.acquire(60):
        waiting = [asyncio.ensure_future(turns.acquire(60).__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            async with turns.acquire(60):
                raise AssertionError("it was not one's turn")
        waiting.pop().cancel()
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="again"):  # after its time, and not at once
            async with turns.acquire(0.01):
                raise AssertionError("it was not one's turn")
    await waiting[0]


async def test_a_turn_that_ends_in_an_error_or_is_not_taken_is_the_next_ones() -> None:
    turns = ConcurrencyLimit(1)
    with pytest.raises(ValueError, match="theirs"):
        async with turns.acquire(60):
            raise ValueError("theirs")
    async with turns.acquire(60):
        leaving = asyncio.ensure_future(turns.acquire(60).__aenter__())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
    async with turns.acquire(60):
        pass


async def test_who_takes_longer_than_is_waited_for_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with loop_timeout(0.2):
            await asyncio.Event().wait()


async def test_that_our_own_loop_is_late_is_nobody_elses_doing() -> None:
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    async with loop_timeout(0.3):
        loop.call_later(0.01, there.set)
        time.sleep(0.5)  # noqa: ASYNC251  that is the lateness
        await there.wait()
        await asyncio.sleep(0)


class Workload:
    """Tasks of tenants that hold a slot until they are told to end."""

    def __init__(self, limit: FairConcurrencyLimit) -> None:
        self.started: list[str] = []
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def begin(self, *names: str) -> None:
        """Begin tasks in this order; the first letter of a name is the tenant."""
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


async def test_a_fair_limit_gives_no_tenant_a_second_slot() -> None:
    work = Workload(FairConcurrencyLimit(2))
    await work.begin("a1", "a2", "b1")
    assert work.started == ["a1", "b1"]
    await work.end("b1", "a1", "a2")
    assert work.started == ["a1", "b1", "a2"]


async def test_a_fair_limit_runs_no_more_tasks_than_it_has_slots() -> None:
    work = Workload(FairConcurrencyLimit(2))
    await work.begin("a1", "b1", "c1", "d1")
    assert work.started == ["a1", "b1"]
    await work.end("a1", "b1", "c1", "d1")
    assert work.started == ["a1", "b1", "c1", "d1"]


async def test_a_fair_limit_serves_the_tenant_that_was_served_least_recently() -> None:
    work = Workload(FairConcurrencyLimit(1))
    await work.begin("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    await work.end("a1", "b1", "c1", "a2", "b2", "a3", "a4")
    assert work.started == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_a_fair_limit_serves_the_tasks_of_a_tenant_in_their_order() -> None:
    work = Workload(FairConcurrencyLimit(2))
    names = [f"a{number}" for number in range(5)]
    await work.begin(*names)
    await work.end(*names)
    assert work.started == names


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
    async with limit.acquire("a", 60):
        with pytest.raises(Overloaded):
            async with limit.acquire("b", 0.01):
                raise AssertionError("there was no slot")
    async with limit.acquire("b", 60):
        pass


async def test_a_fair_limit_frees_the_slot_of_a_task_that_fails() -> None:
    limit = FairConcurrencyLimit(1)
    with pytest.raises(ValueError, match="theirs"):
        async with limit.acquire("a", 60):
            raise ValueError("theirs")
    async with limit.acquire("a", 60):
        pass
