"""Renewal of a lease while its holder works."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from common.concurrency.background import running
from common.mongo import MongoError
from common.telemetry import log


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
