"""Limits on concurrent work, and a time limit that allows for a busy event loop."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from math import ceil
from typing import Any

from common.errors import Overloaded

TICK = 0.1  # seconds


class ConcurrencyLimit:
    """Runs at most `limit` tasks at once; at most `waiting` others wait in order of arrival (None: any number)."""

    def __init__(self, limit: int, *, waiting: int | None = None) -> None:
        self._semaphore = asyncio.Semaphore(limit)
        self._max_waiting = waiting
        self._waiting = 0

    def acquire(self, timeout: float) -> AbstractAsyncContextManager[None]:
        """Hold a slot within the block. Raises Overloaded after `timeout` seconds, or if too many tasks wait."""
        return _Slot(self, timeout)

    async def enter(self, timeout: float) -> None:
        """Take a slot, which `leave` gives back. Raises as `acquire` does."""
        if self._semaphore.locked():
            await self._wait(timeout)
        else:
            await self._semaphore.acquire()  # returns at once

    def leave(self) -> None:
        self._semaphore.release()

    async def _wait(self, timeout: float) -> None:
        if self._waiting == self._max_waiting:
            raise Overloaded
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._semaphore.acquire()
        except TimeoutError:
            raise Overloaded from None
        finally:
            self._waiting -= 1


class _Slot(AbstractAsyncContextManager[None]):
    """A slot of a limit: a generator would cost twice as much, at each call of a service."""

    __slots__ = ("_limit", "_timeout")

    def __init__(self, limit: ConcurrencyLimit, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout

    async def __aenter__(self) -> None:
        await self._limit.enter(self._timeout)

    async def __aexit__(self, *_: object) -> None:
        self._limit.leave()


class FairConcurrencyLimit:
    """Runs at most `limit` tasks at once, and one of each tenant.

    A tenant gets one slot even while others are free: a task cannot be interrupted for a tenant that comes later.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._active: set[str] = set()
        self._last_served: dict[str, int] = {}
        self._served = count(1)

    @asynccontextmanager
    async def acquire(self, tenant_id: str, timeout: float | None) -> AsyncIterator[None]:
        """Hold a slot within the block. The next slot goes to the waiting tenant that was served least recently.

        Raises Overloaded: there was no slot within `timeout` seconds; None is no limit.
        """
        await self._wait(tenant_id, timeout)
        try:
            yield
        finally:
            self._release(tenant_id)

    def active(self) -> Collection[str]:
        """The tenants with a task that holds a slot."""
        return self._active

    async def _wait(self, tenant_id: str, timeout: float | None) -> None:
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant_id, slot))
        self._assign_slots()
        try:
            async with asyncio.timeout(timeout):
                await slot
        except BaseException as error:
            if slot.done() and not slot.cancelled():  # assigned at the moment of the time-out
                self._release(tenant_id)
            else:
                self._waiting.remove((tenant_id, slot))
            if isinstance(error, TimeoutError):
                raise Overloaded from None
            raise

    def _release(self, tenant_id: str) -> None:
        self._active.remove(tenant_id)
        self._assign_slots()
        if not self._active:
            self._last_served.clear()  # No tenant waits.

    def _assign_slots(self) -> None:
        while ready := [each for each in self._waiting if self._is_ready(*each)]:
            tenant_id, slot = chosen = min(ready, key=lambda each: self._last_served.get(each[0], 0))
            self._waiting.remove(chosen)
            self._active.add(tenant_id)
            self._last_served[tenant_id] = next(self._served)
            slot.set_result(None)

    def _is_ready(self, tenant_id: str, slot: asyncio.Future[None]) -> bool:
        is_cancelled = slot.done()  # Its task has not removed it yet.
        return len(self._active) < self._limit and tenant_id not in self._active and not is_cancelled


class loop_timeout:  # noqa: N801  named and used like `asyncio.timeout`
    """Raise TimeoutError after so many seconds, counted in ticks of the event loop.

    A busy loop may be late by seconds while the awaited response has long arrived. A late tick counts as one tick, so
    our own delay is not taken for the other side's.
    """

    __slots__ = ("_limit", "_loop", "_remaining", "_timer")

    def __init__(self, timeout: float) -> None:
        self._remaining = ceil(timeout / TICK)

    async def __aenter__(self) -> None:
        self._loop, self._limit = asyncio.get_running_loop(), asyncio.timeout(None)
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(TICK, self._tick)

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(*error)  # raises TimeoutError after `reschedule`

    def _tick(self) -> None:
        self._remaining -= 1
        if self._remaining > 0:
            self._timer = self._loop.call_later(TICK, self._tick)
        else:
            self._limit.reschedule(self._loop.time())
