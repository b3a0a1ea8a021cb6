"""One call for all tasks that ask at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")
PAUSE = 0.002  # seconds between two calls under load, so that more tasks can join the second


class SingleFlight(Generic[Result]):
    """Calls a function once for all tasks that wait, one call at a time.

    A task never receives the result of a call that started before the task asked: it joins the next call.
    """

    def __init__(self, call: Callable[[], Awaitable[Result]]) -> None:
        self._call = call
        self._running: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def run(self) -> Result:
        """The result of the next call. Raises the errors of the call."""
        if self._next is None:
            self._next = asyncio.create_task(self._run_after(self._running))
        return await asyncio.shield(self._next)  # A cancelled task does not cancel the call for the others.

    async def _run_after(self, previous: asyncio.Task[Result] | None) -> Result:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
            await asyncio.sleep(PAUSE)
        self._running, self._next = self._next, None
        return await self._call()
