"""Zero-copy responses: the system moves the bytes of a file or of another connection to the caller's connection."""

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import BinaryIO

from aiohttp import web

from common.http import connection_limits

MAX_CHUNK = 1 << 20  # bytes at most until others have their turn
UNIX_SEND_BUFFER = 1 << 20  # bytes that may wait in a unix socket; what the system gives is a fifth of it
CAN_SPLICE = hasattr(os, "splice")
PIPE = 256 << 10  # bytes on their way from one connection to another

Move = Callable[[int, int], int]
Watch = Callable[..., object]


class SocketSink:
    """A caller's connection, to which bytes are moved past its transport."""

    def __init__(self, request: web.Request, descriptor: int) -> None:
        self._request = request
        self._descriptor = descriptor
        self._sent = self._marked = 0
        self._left = connection_limits.READ_TIMEOUT

    async def fill(self, length: int, move: Move) -> None:
        """Let `move(descriptor, most)` move so many bytes.

        Raises:
            ConnectionResetError: the caller has gone, or took too little of what waited for them.
            EOFError: there were fewer.
        """
        while length:
            if self._request.transport is None:
                raise ConnectionResetError("The caller has gone.")
            try:
                moved = move(self._descriptor, min(length, MAX_CHUNK))
            except BlockingIOError:
                await self._room()
                continue
            except ConnectionError as error:
                raise ConnectionResetError("The caller has gone.") from error
            if not moved:
                raise EOFError
            length -= moved
            self._sent += moved
            self._request.writer.output_size += moved
            if moved == MAX_CHUNK:
                await asyncio.sleep(0)

    async def _room(self) -> None:
        """Wait until there is room; whoever takes too little is let go, as by `common.http.connection_limits`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._left):
                await writable(self._descriptor)
        self._left -= loop.time() - began
        taken = self._sent - unsent(self._descriptor)
        if taken - self._marked >= connection_limits.READ_PROGRESS:
            self._marked, self._left = taken, connection_limits.READ_TIMEOUT
        elif self._left <= 0:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("The caller took too little.")


async def send_file(request: web.Request, file: BinaryIO, start: int, length: int) -> None:
    """Send bytes of a file to whom the head of the answer was sent. Raises as `SocketSink.fill` does."""
    position = start

    def move(descriptor: int, most: int) -> int:
        nonlocal position
        moved = os.sendfile(descriptor, file.fileno(), position, most)
        position += moved
        return moved

    async with _outlet(request) as outlet:
        await outlet.fill(length, move)


async def splice(request: web.Request, source: asyncio.Transport, length: int, *, timeout: float) -> None:
    """Send what comes over another connection, which nobody else reads any more, as `send_file` does a file.

    Raises as `SocketSink.fill` does, and TimeoutError where nothing comes for `timeout` seconds.
    """
    async with _outlet(request) as outlet:
        with duplicate(source) as inlet, pipe() as (reading, writing):
            while length:
                moved = await fill_pipe(inlet, writing, min(length, PIPE), timeout)
                length -= moved
                await outlet.fill(moved, partial(splice_nonblocking, reading))


async def fill_pipe(source: int, writing: int, most: int, timeout: float) -> int:
    """How many bytes came into the pipe: one at least, and at most so many."""
    moved = None
    while moved is None:
        try:
            moved = splice_nonblocking(source, writing, most)
        except BlockingIOError:
            async with asyncio.timeout(timeout):
                await readable(source)
        except ConnectionError:
            moved = 0
    if not moved:
        raise EOFError
    return moved


@asynccontextmanager
async def _outlet(request: web.Request) -> AsyncIterator[SocketSink]:
    """The way to a caller once nothing waits for them in the transport. Raises ConnectionResetError."""
    await request.writer.drain()
    transport = request.transport
    if transport is None or transport.get_write_buffer_size():
        raise ConnectionResetError("The caller has gone.")
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER)
    with duplicate(transport) as descriptor:
        yield SocketSink(request, descriptor)


def splice_nonblocking(source: int, sink: int, most: int) -> int:
    return os.splice(source, sink, most, flags=os.SPLICE_F_NONBLOCK)


@contextmanager
def duplicate(transport: asyncio.BaseTransport) -> Iterator[int]:
    """The connection under a descriptor of its own: its loop keeps the transport's for the transport."""
    descriptor = os.dup(transport.get_extra_info("socket").fileno())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        with suppress(OSError):  # Who has many pipes may have small ones only.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _event(loop.add_reader, loop.remove_reader, descriptor)


async def writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _event(loop.add_writer, loop.remove_writer, descriptor)


async def _event(watch: Watch, unwatch: Watch, descriptor: int) -> None:
    """Wait until a descriptor can be read or written."""
    came = asyncio.Event()
    watch(descriptor, came.set)
    try:
        await came.wait()
    finally:
        unwatch(descriptor)


def unsent(descriptor: int) -> int:
    """Bytes that wait in the system for who takes them, as far as it tells."""
    with suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    return 0
