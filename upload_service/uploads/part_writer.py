"""Bytes on their way from a socket to a worker thread: in batches, one being worked on while the next one comes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

BATCH = 1 << 20  # bytes; a batch is one visit to a worker thread
BLOCKS = 512  # of a batch, where they are tiny

Take = Callable[[Sequence[bytes], bool], None]
Expect = Callable[[int], Awaitable[None]]


async def write_in_thread(blocks: AsyncIterator[bytes], take: Take, expect: Expect | None = None) -> int:
    """Hand all blocks to `take(blocks, last)` in a worker thread, in order, and count their bytes.

    Only the last visit to it is `last`; it may have no block. `expect` is told a count before so many bytes are handed
    over, and may raise to end it. Whatever happens, `take` is not running any more when this returns.
    """
    count = size = 0
    worker = _Worker(take)
    batch: list[bytes] = []
    try:
        async for block in blocks:
            if size >= BATCH or len(batch) >= BLOCKS:
                await worker.hand_over(batch)
                batch, size = [], 0
            batch.append(block)
            size += len(block)
            count += len(block)
            if expect and (size >= BATCH or len(batch) >= BLOCKS):
                await expect(count)
        if expect:
            await expect(count)
        await worker.hand_over(batch, last=True)
        await worker.done()
    finally:
        await worker.rest()
    return count


class _Worker:
    """Does one batch at a time in a worker thread."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._working: asyncio.Future[None] | None = None

    async def hand_over(self, batch: Sequence[bytes], *, last: bool = False) -> None:
        """Begin with a batch once the one before is done; raises what that one raised."""
        await self.done()
        self._working = asyncio.get_running_loop().run_in_executor(None, self._take, batch, last)

    async def done(self) -> None:
        if self._working is not None:
            await self._working

    async def rest(self) -> None:
        """Wait for the end of the work, whatever came of it."""
        if self._working is not None and not self._working.done():
            await asyncio.wait([self._working])
