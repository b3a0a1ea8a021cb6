"""The body of a response in blocks: bytes, and parts of files that the system sends without copying."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class OpenFile(Protocol):
    """A file that stays open, and the same, while this object exists."""

    def fileno(self) -> int: ...


@dataclass(frozen=True)
class FileRange:
    """Bytes of an open file."""

    file: OpenFile
    start: int
    length: int

    def __len__(self) -> int:
        return self.length


Block = bytes | FileRange


class BlockSource:
    """The bytes of blocks, one after the other: a `Source` of `byte_sources`."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._rest = iter(blocks)
        self._block: Block = b""
        self._position = 0  # in this block

    def move(self, sink: int, limit: int) -> int:
        """Send at most `limit` of the next bytes to a descriptor. Returns their number. Raises EOFError at the end."""
        while self._position == len(self._block):
            if (block := next(self._rest, None)) is None:
                raise EOFError
            self._block, self._position = block, 0
        limit = min(limit, len(self._block) - self._position)
        if isinstance(self._block, FileRange):
            moved = os.sendfile(sink, self._block.file.fileno(), self._block.start + self._position, limit)
        else:
            moved = os.write(sink, memoryview(self._block)[self._position : self._position + limit])
        if not moved:
            raise EOFError
        self._position += moved
        return moved

    async def wait(self) -> None:
        """Return at once: blocks are there from the beginning."""


def read_blocks(blocks: Iterable[Block]) -> bytes:
    """Return the bytes of blocks, in a worker thread."""
    return b"".join(
        os.pread(block.file.fileno(), block.length, block.start) if isinstance(block, FileRange) else block
        for block in blocks
    )
