"""Work that a service does of its own accord, beside its requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from common.errors import Problem
from common.mongo import MongoError
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
            except (MongoError, OSError, Problem) as error:
                log.warning("background_failed", name=name, error=type(error).__name__)
            await pause()

    task = asyncio.create_task(repeat(), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
