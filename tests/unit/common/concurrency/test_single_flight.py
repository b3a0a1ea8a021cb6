"""Concurrent callers share one call, and a single caller does not wait."""

import asyncio
from itertools import count

import pytest

from common.concurrency import batching
from common.concurrency.batching import SingleFlight


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
