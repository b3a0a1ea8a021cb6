"""Fewer calls for concurrent callers: one command for their requests, or one result for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")
MAX_BATCH = 512  # requests
PAUSE = 0.002  # seconds between two calls under load, so that more callers can join


class Batcher(Generic[Request, Result]):
    """Sends waiting requests in batches, one at a time. No request is answered by a batch sent before it came."""

    def __init__(self, send: Callable[[Sequence[Request]], Awaitable[Sequence[Result]]]) -> None:
        """`send` returns the answers to at most `MAX_BATCH` requests, in their order."""
        self._send = send
        self._waiting: list[tuple[Request, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Result:
        """The answer to a request. An error of `send` is raised for all waiting requests."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._send_waiting())
        return await answer

    async def _send_waiting(self) -> None:
        batch: list[tuple[Request, asyncio.Future[Result]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                answers = await self._send([request for request, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():  # The task may be cancelled.
                        future.set_result(answer)
                if 1 < len(batch) < MAX_BATCH:
                    await asyncio.sleep(PAUSE)
        except Exception as error:  # noqa: BLE001  the waiting tasks raise it
            for _, future in [*batch, *self._waiting]:
                if not future.done():
                    future.set_exception(error)
            self._waiting = []
        finally:
            self._task = None


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
