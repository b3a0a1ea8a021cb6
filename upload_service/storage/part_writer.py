"""Writes the body of a request to the file of its transfer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from typing import cast

from common.http.socket_body import SocketBody
from upload_service.storage.part_files import PartFile

BATCH = 1 << 20  # bytes that one visit to a worker thread writes
MAX_BLOCKS = 512  # in a batch of tiny blocks

Reserve = Callable[[int], Awaitable[None]]


class PartWriter:
    """Writes blocks to a file in a worker thread: one batch is written while the next one arrives.

    A large block that is still in the socket is received, written and synced by one visit.
    `open_file` runs in the worker thread as well. A write that fails truncates the file to its length before.
    `logs` adds the new length to the log of offsets.
    """

    def __init__(self, open_file: Callable[[], PartFile], *, logs: bool = False) -> None:
        self._open_file = open_file
        self._logs = logs
        self._file: PartFile | None = None
        self._visit: asyncio.Future[None] | None = None
        self._is_synced = False

    async def write(
        self, blocks: AsyncIterator[bytes] | AsyncIterator[bytes | SocketBody], reserve: Reserve | None = None
    ) -> int:
        """Write all blocks in order, sync the file, close it, and return the number of bytes.

        `reserve` is called with a number of bytes before so many are written; its error ends the write.
        Raises StorageFull and TransferDamaged.
        """
        count = size = 0
        batch: list[bytes] = []
        try:
            async for block in blocks:
                if isinstance(block, SocketBody):
                    if reserve:
                        await reserve(count + block.limit)
                    await self._receive(batch, block)
                    batch, size = [], 0
                elif size >= BATCH or len(batch) >= MAX_BLOCKS:
                    if reserve:
                        await reserve(count)
                    await self._start_visit(batch)
                    batch, size = [block], len(block)
                else:
                    batch.append(block)
                    size += len(block)
                count += len(block)
            if reserve:
                await reserve(count)
            if batch or not self._is_synced or self._logs:
                await self._start_visit(batch, last=True)
            await self._end_visit()
            self._close()
        except BaseException:
            await asyncio.shield(self._undo())  # It ends even if the request is cancelled once more.
            raise
        return count

    async def _start_visit(self, batch: Sequence[bytes], *, last: bool = False) -> None:
        await self._end_visit()
        write = self._write_last if last else self._write_batch
        self._visit = asyncio.get_running_loop().run_in_executor(None, write, batch)

    async def _receive(self, batch: Sequence[bytes], body: SocketBody) -> None:
        await self._end_visit()
        await body.receive(_PartSink(self, batch))

    async def _end_visit(self) -> None:
        if self._visit is not None:
            await asyncio.wait([self._visit])  # Awaited itself, it would be cancelled with us while the thread writes.
            self._visit.result()

    def _write_batch(self, blocks: Sequence[bytes | memoryview], *, last: bool = False) -> None:
        if self._file is None:
            self._file = self._open_file()
        self._is_synced = False
        self._file.write(cast("Sequence[bytes]", blocks))  # A memoryview is as good.
        if last:
            self._file.sync()
            self._is_synced = True

    def _write_last(self, blocks: Sequence[bytes | memoryview]) -> None:
        if blocks or not self._is_synced:
            self._write_batch(blocks, last=True)
        if self._logs and self._file is not None:
            self._file.log()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _undo(self) -> None:
        if self._visit is not None:
            await asyncio.gather(self._visit, return_exceptions=True)
        await asyncio.to_thread(self._truncate)

    def _truncate(self) -> None:
        if self._file is not None:
            with closing(self._file) as file:
                file.truncate()


class _PartSink:
    """Writes received bytes after those that were read before, and syncs the file at the end."""

    def __init__(self, writer: PartWriter, before: Sequence[bytes]) -> None:
        self._writer = writer
        self._before = before

    def write(self, block: memoryview) -> None:
        self._writer._write_batch([*self._before, block])
        self._before = ()

    def end(self) -> None:
        self._writer._write_batch(self._before, last=True)
