"""So many things at once and no more: the others wait their turn, and not for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.errors import Overloaded


class Turns:
    """At most `at_once` things; who comes when all are being done waits in the order of coming."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def one(self, patience: float) -> AsyncIterator[None]:
        """One's turn. Raises Overloaded where it does not come within `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded from None
        try:
            yield
        finally:
            self._free.release()
