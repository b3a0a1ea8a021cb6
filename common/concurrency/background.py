"""Work that a service does of its own accord, beside its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from common.telemetry import log

Item = TypeVar("Item")


@asynccontextmanager
async def repeating(
    name: str,
    work: Callable[[], Awaitable[None]],
    pause: Callable[[], Awaitable[None]],
    *,
    after: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Do `work` again and again within the block, with a pause after each time; what fails is tried again.

    Nothing is done until `after` has returned, where it is given.
    """

    async def repeat() -> None:
        if after:
            await after()
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  whatever it was, what is left is done the next time
                log.error("background_failed", name=name, exc_info=error)
            await pause()

    task = asyncio.create_task(repeat(), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def with_each(name: str, items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Do `work` with one item after another; one that fails is left for the next time and keeps no other waiting."""
    for item in items:
        try:
            await work(item)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, the others are not to blame
            log.error("background_failed", name=name, item=repr(item), exc_info=error)
