"""One call for all concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")
PAUSE = 0.002  # seconds between two calls under load, to collect more callers


class SingleFlight(Generic[Result]):
    """Shares the results of an operation among concurrent callers, one call at a time.

    A caller never receives the result of a call that started before it: it waits for the next call.
    """

    def __init__(self, operation: Callable[[], Awaitable[Result]]) -> None:
        self._operation = operation
        self._running: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def run(self) -> Result:
        """Return the result of the next call. Raises its error."""
        if self._next is None:
            self._next = asyncio.create_task(self._call(self._running))
        return await asyncio.shield(self._next)  # A caller that is cancelled does not cancel the call.

    async def _call(self, before: asyncio.Task[Result] | None) -> Result:
        if before is not None and not before.done():
            await asyncio.wait([before])
            await asyncio.sleep(PAUSE)
        self._running, self._next = self._next, None
        return await self._operation()
