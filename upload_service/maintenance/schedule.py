"""The background maintenance of stored files, which every replica does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from common.concurrency.background import repeating
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.maintenance.scrub import Scrub
from upload_service.quota.reconciliation import Reconciliation

SCRUB_PAUSE = 60  # seconds
ORPHANS_PAUSE = 3600
RECONCILIATION_PAUSE = 3600


@asynccontextmanager
async def upkeep(
    scrub: Scrub,
    orphans: OrphanCollector,
    reconciliation: Reconciliation,
    *,
    scrub_interval: int,
    after: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Run all of it within the block, once `after` has returned. A `scrub_interval` of 0 seconds disables the scrub."""
    work = [
        ("orphans", orphans.collect, ORPHANS_PAUSE),
        ("reconciliation", reconciliation.check_due, RECONCILIATION_PAUSE),
    ]
    if scrub_interval:
        work.append(("scrub", partial(scrub.check_due, scrub_interval), SCRUB_PAUSE))
    async with AsyncExitStack() as stack:
        for name, step, pause in work:
            await stack.enter_async_context(repeating(name, step, partial(asyncio.sleep, pause), after=after))
        yield
