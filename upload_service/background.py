"""Work that a service does of its own accord, beside its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from common.telemetry import log


@asynccontextmanager
async def repeating(
    name: str, work: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Do `work` again and again within the block, with a pause after each time; what fails is tried again."""

    async def repeat() -> None:
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
