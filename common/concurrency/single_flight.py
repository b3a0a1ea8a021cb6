"""One question for all who ask at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
PAUSE = 0.002  # seconds after a round for which others wait already, for more to come in a crowd


class SingleFlight(Generic[Answer]):
    """Asks again and again, one round at a time, while there is anybody to tell.

    Who comes while a round is under way waits for the next: what one is told was asked after one came.
    """

    def __init__(self, ask: Callable[[], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._under_way: asyncio.Task[Answer] | None = None
        self._next: asyncio.Task[Answer] | None = None

    async def run(self) -> Answer:
        """What the next round finds. Raises what it raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._under_way))
        return await asyncio.shield(self._next)  # The round is not over where one of those who wait goes away.

    async def _round(self, before: asyncio.Task[Answer] | None) -> Answer:
        if before is not None and not before.done():
            await asyncio.wait([before])
            await asyncio.sleep(PAUSE)
        self._under_way, self._next = self._next, None
        return await self._ask()
