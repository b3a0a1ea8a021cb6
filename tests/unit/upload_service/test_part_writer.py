"""The writer of the body of a request to the file of its transfer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from upload_service.storage.part_files import BATCH, PartFile, PartWriter


async def endless_blocks() -> AsyncIterator[bytes]:
    while True:
        yield bytes(BATCH)


async def test_a_write_cancelled_twice_leaves_its_file_truncated_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "upload.part"
    is_writing, may_write, is_closed = threading.Event(), threading.Event(), threading.Event()

    class SlowFile(PartFile):
        def write(self, blocks: Sequence[bytes]) -> None:
            super().write(blocks)
            is_writing.set()
            may_write.wait(10)

        def close(self) -> None:
            super().close()
            is_closed.set()

    write = asyncio.create_task(PartWriter(lambda: SlowFile(path, 0, None)).write(endless_blocks()))
    assert await asyncio.to_thread(is_writing.wait, 10)
    for _ in range(2):
        write.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await write
    assert path.stat().st_size == BATCH
    may_write.set()
    assert await asyncio.to_thread(is_closed.wait, 10)
    assert path.stat().st_size == 0
