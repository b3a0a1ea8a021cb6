"""How tests wait for what does not announce itself: by looking, and never for longer than they would be patient."""

import asyncio
from collections.abc import Awaitable, Callable

TIMEOUT = 60.0  # seconds after which a test has failed
POLL_INTERVAL = 0.02  # seconds between two looks


async def until(met: Callable[[], Awaitable[bool]], *, timeout: float = TIMEOUT) -> None:
    """Return as soon as `met()` is true. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            if await met():
                return
            await asyncio.sleep(POLL_INTERVAL)
