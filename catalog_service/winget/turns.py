"""Long work on the event loop, in which others have their turn."""

import asyncio
import time

STRETCH = 0.005  # seconds for which others wait


class Turn:
    """What is asked between two pieces of work whether it is the others' turn."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let others have their turn, where they have waited for a while."""
        if time.perf_counter() - self._began >= STRETCH:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
