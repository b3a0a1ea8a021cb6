"""So many things at once and no more: the others wait their turn, and not for ever.

And where nobody else is slow but we are, it is not them whom we have no patience with.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil

from common.errors import Overloaded

TICK = 0.1  # seconds


class Turns:
    """At most `at_once` things; who comes when all are being done waits in the order of coming."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def one(self, patience: float) -> AsyncIterator[None]:
        """One's turn. Raises Overloaded where it does not come within `patience` seconds."""
        if self._free.locked():
            await self._wait(patience)
        else:
            await self._free.acquire()  # at once
        try:
            yield
        finally:
            self._free.release()

    async def _wait(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded from None


@asynccontextmanager
async def within(patience: float) -> AsyncIterator[None]:
    """Raise TimeoutError where others take longer than so many seconds.

    The time is counted in ticks of our own loop: in a crowd that is late by seconds, while an answer has long been
    there, and however late a tick is, it counts as one.
    """
    loop, left = asyncio.get_running_loop(), ceil(patience / TICK)
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal left, timer
        left -= 1
        if left > 0:
            timer = loop.call_later(TICK, tick)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(TICK, tick)
        try:
            yield
        finally:
            timer.cancel()
