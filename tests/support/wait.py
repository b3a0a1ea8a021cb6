"""Waiting for a condition by polling."""

import asyncio
from collections.abc import Awaitable, Callable

TIMEOUT = 60.0  # seconds after which a test has failed
POLL_INTERVAL = 0.02  # seconds


async def until(condition: Callable[[], Awaitable[bool]], *, timeout: float = TIMEOUT) -> None:
    """Wait until `condition()` is true. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            if await condition():
                return
            await asyncio.sleep(POLL_INTERVAL)
