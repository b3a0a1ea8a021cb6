"""So many at once, the others in their order and for a bounded time."""

import asyncio
import time

import pytest

from common.errors import Overloaded
from common.turns import Turns, within


async def test_no_more_than_so_many_have_their_turn_at_once() -> None:
    turns, running, most = Turns(3), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with turns.one(60):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    assert (running, most) == (0, 3)


async def test_turns_come_in_the_order_of_asking() -> None:
    turns, order = Turns(1), []

    async def work(number: int) -> None:
        async with turns.one(60):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


async def test_whose_turn_does_not_come_is_told_when_to_come_again() -> None:
    turns = Turns(1)
    async with turns.one(60):
        with pytest.raises(Overloaded) as refused:
            async with turns.one(0.01):
                raise AssertionError("it was not one's turn")
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) > 0


async def test_a_turn_that_ends_in_an_error_or_is_not_taken_is_the_next_ones() -> None:
    turns = Turns(1)
    with pytest.raises(ValueError, match="theirs"):
        async with turns.one(60):
            raise ValueError("theirs")
    async with turns.one(60):
        leaving = asyncio.ensure_future(turns.one(60).__aenter__())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
    async with turns.one(60):
        pass


async def test_who_takes_longer_than_is_waited_for_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.2):
            await asyncio.Event().wait()


async def test_that_our_own_loop_is_late_is_nobody_elses_doing() -> None:
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    async with within(0.3):
        loop.call_later(0.01, there.set)
        time.sleep(0.5)  # noqa: ASYNC251  that is the lateness
        await there.wait()
        await asyncio.sleep(0)
