"""So many things at once and no more: the others wait their turn, and not for ever.

And where nobody else is slow but we are, it is not them whom we have no patience with.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from types import TracebackType

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


class within:  # noqa: N801  it reads as `async with within(3):`
    """Raises TimeoutError where others take longer than so many seconds.

    The time is counted in ticks of our own loop: in a crowd that is late by seconds, while an answer has long been
    there, and however late a tick is, it counts as one.
    """

    __slots__ = ("_left", "_limit", "_loop", "_timer")

    def __init__(self, patience: float) -> None:
        self._left = ceil(patience / TICK)
        self._limit = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(TICK, self._tick)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._timer = self._loop.call_later(TICK, self._tick)
        else:
            self._limit.reschedule(self._loop.time())
