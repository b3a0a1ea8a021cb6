"""Moves bytes between descriptors without reading them: from a file, or from a connection through a pipe.

- No call waits for a connection; the event loop does.
- Descriptors of connections are duplicates, and their transports neither read nor write meanwhile.
- Files are written in worker threads. A thread's descriptors are closed after its last visit, also after a
  cancellation.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

CAN_SPLICE = hasattr(os, "splice")
VISIT = 8 << 20  # bytes that one visit to a thread moves; then others have their turn
PIPE = 256 << 10  # bytes of the pipe between two connections

Result = TypeVar("Result")
Watch = Callable[..., object]


class SourceEmpty(Exception):
    """The other connection has no bytes now."""


class Source(Protocol):
    """The bytes to send. `move` sends some of them to a descriptor, and returns their number.

    It raises BlockingIOError if the descriptor is full, SourceEmpty if `wait` must be called first, and EOFError.
    """

    def move(self, sink: int, limit: int) -> int: ...
    async def wait(self) -> None: ...


class ConnectionSource:
    """The bytes that arrive on a connection, which must have no other reader. They pass through a pipe."""

    def __init__(self, descriptor: int, reading: int, writing: int, *, timeout: float) -> None:
        self._descriptor, self._reading, self._writing = descriptor, reading, writing
        self._in_pipe = 0
        self.taken = 0  # bytes of the connection, those in the pipe included
        self.timeout = timeout

    def move(self, sink: int, limit: int) -> int:
        if not self._in_pipe:
            try:
                self._in_pipe = splice_nonblocking(self._descriptor, self._writing, min(limit, PIPE))
            except BlockingIOError:
                raise SourceEmpty from None
            except OSError:  # The network may be gone, too, or the connection timed out.
                raise EOFError from None
            if not self._in_pipe:
                raise EOFError
            self.taken += self._in_pipe
        moved = splice_nonblocking(self._reading, sink, min(limit, self._in_pipe))
        self._in_pipe -= moved
        return moved

    async def wait(self) -> None:
        """Wait until bytes arrive. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.timeout):
            await until_ready(loop.add_reader, loop.remove_reader, self._descriptor)


class Side(Enum):
    """The side that must wait."""

    SOURCE = "source"
    SINK = "sink"


def move(source: Source, sink: int, length: int) -> tuple[int, Side | None]:
    """Move at most `length` bytes until one side must wait. Returns their number, and the side.

    Raises EOFError if nothing was moved before the end, or ConnectionError of the sink.
    """
    moved = 0
    try:
        while moved < length:
            moved += source.move(sink, length - moved)
    except BlockingIOError:
        return moved, Side.SINK
    except SourceEmpty:
        return moved, Side.SOURCE
    except EOFError:
        if not moved:
            raise
        return moved, Side.SOURCE  # The next call raises it. So no moved byte remains uncounted.
    return moved, None


async def splice_to_file(source: asyncio.Transport, file: BinaryIO, length: int, *, timeout: float) -> None:
    """Write the bytes that arrive on a connection, which must have no other reader, to a file at its position.

    Raises EOFError if they end early, TimeoutError if nothing arrives for `timeout` seconds, OSError of the file.
    """
    with duplicate(source) as descriptor, pipe() as (reading, writing):
        connection = ConnectionSource(descriptor, reading, writing, timeout=timeout)
        while length:
            moved, waiting = await in_thread(partial(move, connection, file.fileno(), min(length, VISIT)))
            length -= moved
            if waiting:
                await connection.wait()


async def in_thread(call: Callable[[], Result]) -> Result:
    """The result of a call in a worker thread. A cancellation waits for its end: it uses descriptors."""
    visit = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not visit.done():
        try:
            await asyncio.wait([visit])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    return visit.result()


def splice_nonblocking(source: int, sink: int, limit: int) -> int:
    return os.splice(source, sink, limit, flags=os.SPLICE_F_NONBLOCK)


@contextmanager
def duplicate(transport: asyncio.BaseTransport) -> Iterator[int]:
    """A second descriptor of the connection: the event loop keeps the first for the transport."""
    descriptor = os.dup(transport.get_extra_info("socket").fileno())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        with suppress(OSError):  # A user with many pipes gets small ones only.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def until_ready(watch: Watch, unwatch: Watch, descriptor: int) -> None:
    is_ready = asyncio.Event()
    watch(descriptor, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        unwatch(descriptor)


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
