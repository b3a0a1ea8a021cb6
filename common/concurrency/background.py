"""Background work of a service, beside its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from common.errors import Problem
from common.mongo import MongoError, is_mongo_outage
from common.redis import RedisOutage
from common.telemetry import log

Item = TypeVar("Item")


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], name: str | None = None) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` as a task within the block. At the end it is cancelled, and its error is ignored."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def repeating(
    name: str,
    work: Callable[[], Awaitable[None]],
    pause: Callable[[], Awaitable[None]],
    *,
    after: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Repeat `work` within the block, with a pause after each time and after `after` returned; errors are logged."""

    async def repeat() -> None:
        if after:
            await after()
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  the next round tries again
                log_failure(error, name=name)
            if _is_cancelled():
                return
            await pause()

    async with running(repeat(), name):
        yield


async def with_each(name: str, items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Do `work` with one item after another; errors are logged and do not stop the others."""
    for item in items:
        try:
            await work(item)
        except Exception as error:  # noqa: BLE001  one bad item must not stop the others
            log_failure(error, name=name, item=repr(item))
        if _is_cancelled():
            raise asyncio.CancelledError  # for the caller: it may have more work


def log_failure(error: Exception, **fields: str) -> None:
    """Log an error with its traceback; for an outage of a store or service a warning with its reason is enough."""
    is_outage = isinstance(error, RedisOutage) or (isinstance(error, MongoError) and is_mongo_outage(error))
    if is_outage or (isinstance(error, Problem) and error.retry_after is not None):
        log.warning("background_waits", **fields, error=type(error).__name__, reason=str(error))
    else:
        log.error("background_failed", **fields, exc_info=error)


def _is_cancelled() -> bool:
    """Whether the running task was cancelled. Work that cannot give something back may raise its own error then."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@asynccontextmanager
async def keep_lease(
    renew: Callable[[], Awaitable[bool]], interval: float, **log_fields: str
) -> AsyncIterator["asyncio.Task[None]"]:
    """Call `renew` every `interval` seconds within the block; a failing store is tried again at the next interval.

    Yields the task that renews. It ends early when `renew` returns False: another process has the lease.
    """

    async def repeat() -> None:
        is_held = True
        while is_held:
            await asyncio.sleep(interval)
            try:
                is_held = await renew()
            except MongoError as error:
                log.warning("lease_not_renewed", error=type(error).__name__, **log_fields)

    async with running(repeat()) as renewal:
        yield renewal


async def run_leased(
    work: Coroutine[Any, Any, None], renew: Callable[[], Awaitable[bool]], interval: float, **log_fields: str
) -> bool:
    """Do `work`, and renew its lease as `keep_lease` does. Cancel the work and return False if the lease is lost."""
    async with keep_lease(renew, interval, **log_fields) as renewal, running(work) as working:
        await asyncio.wait({working, renewal}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            log.warning("lease_lost", **log_fields)
            return False
        await working
        return True
