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

MAX_CHUNK = 1 << 20  # bytes to send before other tasks run
UNIX_SEND_BUFFER = 1 << 20  # bytes of a unix socket's send buffer, five times the default
CAN_SPLICE = hasattr(os, "splice")
PIPE = 256 << 10  # bytes of the pipe between two connections

Move = Callable[[int, int], int]
Watch = Callable[..., object]


class SocketSink:
    """A caller's connection, to which bytes are sent without its transport."""

    def __init__(self, request: web.Request, descriptor: int) -> None:
        self._request = request
        self._descriptor = descriptor
        self._sent = self._sent_before = 0
        self._remaining = connection_limits.READ_TIMEOUT

    async def fill(self, length: int, move: Move) -> None:
        """Send `length` bytes by repeated calls of `move(descriptor, limit)`.

        Raises ConnectionResetError if the caller has gone or reads too slowly, EOFError if the source ends early.
        """
        while length:
            if self._request.transport is None:
                raise ConnectionResetError("The caller has gone.")
            try:
                moved = move(self._descriptor, min(length, MAX_CHUNK))
            except BlockingIOError:
                await self._wait_for_space()
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

    async def _wait_for_space(self) -> None:
        """Wait until the socket is writable, with the same limit as `common.http.connection_limits`."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._remaining):
                await _until_ready(loop.add_writer, loop.remove_writer, self._descriptor)
        self._remaining -= loop.time() - start
        read = self._sent - unsent(self._descriptor)
        if read - self._sent_before >= connection_limits.READ_PROGRESS:
            self._sent_before, self._remaining = read, connection_limits.READ_TIMEOUT
        elif self._remaining <= 0:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("The caller took too little.")


async def send_file(request: web.Request, file: BinaryIO, start: int, length: int) -> None:
    """Send bytes of a file after the response's head. Raises as `SocketSink.fill` does."""
    position = start

    def move(descriptor: int, limit: int) -> int:
        nonlocal position
        moved = os.sendfile(descriptor, file.fileno(), position, limit)
        position += moved
        return moved

    async with _open_sink(request) as sink:
        await sink.fill(length, move)


async def splice(request: web.Request, source: asyncio.Transport, length: int, *, timeout: float) -> None:
    """Send the bytes that arrive on another connection, which must have no other reader.

    Raises as `SocketSink.fill` does, and TimeoutError if nothing arrives for `timeout` seconds.
    """
    async with _open_sink(request) as sink:
        with duplicate(source) as descriptor, pipe() as (reading, writing):
            while length:
                moved = await fill_pipe(descriptor, writing, min(length, PIPE), timeout)
                length -= moved
                await sink.fill(moved, partial(splice_nonblocking, reading))


async def fill_pipe(source: int, writing: int, limit: int, timeout: float) -> int:
    """Move at least one byte into the pipe, at most `limit`, and return the number. Raises EOFError or TimeoutError."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            moved = splice_nonblocking(source, writing, limit)
        except BlockingIOError:
            async with asyncio.timeout(timeout):
                await _until_ready(loop.add_reader, loop.remove_reader, source)
        except ConnectionError:
            raise EOFError from None
        else:
            if not moved:
                raise EOFError
            return moved


@asynccontextmanager
async def _open_sink(request: web.Request) -> AsyncIterator[SocketSink]:
    """The caller's connection after its transport sent all bytes. Raises ConnectionResetError."""
    await request.writer.drain()
    transport = request.transport
    if transport is None or transport.get_write_buffer_size():
        raise ConnectionResetError("The caller has gone.")
    enlarge_send_buffer(transport)
    with duplicate(transport) as descriptor:
        yield SocketSink(request, descriptor)


def enlarge_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Let a unix socket take more bytes at once. The system adjusts other sockets."""
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER)


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


async def _until_ready(watch: Watch, unwatch: Watch, descriptor: int) -> None:
    is_ready = asyncio.Event()
    watch(descriptor, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        unwatch(descriptor)


def unsent(descriptor: int) -> int:
    """The bytes in the socket's send buffer; 0 if the system does not report them."""
    with suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    return 0
