"""Who asks at the same time shares one question, and who asks alone waits for nobody."""

import asyncio
from itertools import count

import pytest

from common.concurrency import single_flight
from common.concurrency.single_flight import SingleFlight


async def test_who_asks_alone_is_not_kept_waiting_for_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> str:
        return "now"

    monkeypatch.setattr(single_flight, "PAUSE", 3600)
    alone = SingleFlight(ask)
    async with asyncio.timeout(60):
        assert [await alone.run() for _ in range(3)] == ["now"] * 3


async def test_all_who_come_while_a_question_is_under_way_share_the_next() -> None:
    numbers, asked, let_on = count(1), asyncio.Event(), asyncio.Event()

    async def ask() -> int:
        number = next(numbers)
        asked.set()
        await let_on.wait()
        return number

    crowd = SingleFlight(ask)
    first = asyncio.create_task(crowd.run())
    await asked.wait()
    others = [asyncio.create_task(crowd.run()) for _ in range(5)]
    await asyncio.sleep(0)
    let_on.set()
    assert [await first, *await asyncio.gather(*others)] == [1, 2, 2, 2, 2, 2]
