"""Background work of a service, beside its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

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
                log.error("background_failed", name=name, exc_info=error)
            await pause()

    async with running(repeat(), name):
        yield


async def with_each(name: str, items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Do `work` with one item after another; errors are logged and do not stop the others."""
    for item in items:
        try:
            await work(item)
        except Exception as error:  # noqa: BLE001  one bad item must not stop the others
            log.error("background_failed", name=name, item=repr(item), exc_info=error)
