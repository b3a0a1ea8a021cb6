"""Zero-copy responses: the system moves the bytes of a file or of another connection to the caller's connection.

Other requests have their turn after each `MAX_CHUNK` bytes.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO

from aiohttp import web

from common.concurrency.blocks import Block, BlockSource, FileRange
from common.concurrency.byte_sources import (
    ConnectionSource,
    Side,
    Source,
    duplicate,
    move,
    pipe,
    until_ready,
)
from common.http import connection_limits

MAX_CHUNK = 1 << 20  # bytes to send before other tasks run
UNIX_SEND_BUFFER = 1 << 20  # bytes of a unix socket's send buffer, five times the default
LARGE_SEND_BUFFER = 4 << 20  # the same for bodies whose last bytes need no confirmation: both sides wait less often


class SocketSink:
    """A caller's connection, to which bytes are sent without its transport."""

    def __init__(self, request: web.Request, descriptor: int) -> None:
        self._request = request
        self._descriptor = descriptor
        self._sent = self._sent_before = 0
        self._remaining = connection_limits.READ_TIMEOUT

    async def fill(self, length: int, source: Source) -> None:
        """Send `length` bytes.

        Raises ConnectionResetError if the caller has gone or reads too slowly, EOFError if the source ends early, and
        what the source raises.
        """
        while length:
            if self._request.transport is None:
                raise ConnectionResetError("The caller has gone.")
            try:
                moved, waiting = move(source, self._descriptor, min(length, MAX_CHUNK))
            except ConnectionError as error:
                raise ConnectionResetError("The caller has gone.") from error
            length -= moved
            self._sent += moved
            self._request.writer.output_size += moved
            match waiting:
                case Side.SINK:
                    await self._wait_for_space()
                case Side.SOURCE:
                    await source.wait()
                case None:
                    await asyncio.sleep(0)

    async def _wait_for_space(self) -> None:
        """Wait until the socket is writable, with the same limit as `common.http.connection_limits`."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._remaining):
                await until_ready(loop.add_writer, loop.remove_writer, self._descriptor)
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
    async with _open_sink(request) as sink:
        await sink.fill(length, BlockSource([FileRange(file, start, length)]))


async def send_blocks(request: web.Request, blocks: Sequence[Block]) -> None:
    """Send bytes and parts of files after the response's head. Raises as `SocketSink.fill` does."""
    async with _open_sink(request, LARGE_SEND_BUFFER) as sink:
        await sink.fill(sum(map(len, blocks)), BlockSource(blocks))


async def splice(request: web.Request, source: asyncio.Transport, length: int, *, timeout: float) -> None:
    """Send the bytes that arrive on another connection, which must have no other reader.

    Raises as `SocketSink.fill` does, and TimeoutError if nothing arrives for `timeout` seconds.
    """
    async with _open_sink(request) as sink:
        with duplicate(source) as descriptor, pipe() as (reading, writing):
            await sink.fill(length, ConnectionSource(descriptor, reading, writing, timeout=timeout))


@asynccontextmanager
async def _open_sink(request: web.Request, buffer: int = UNIX_SEND_BUFFER) -> AsyncIterator[SocketSink]:
    """The caller's connection after its transport sent all bytes. Raises ConnectionResetError."""
    await request.writer.drain()
    transport = request.transport
    if transport is None or transport.get_write_buffer_size():
        raise ConnectionResetError("The caller has gone.")
    enlarge_send_buffer(transport, buffer)
    with duplicate(transport) as descriptor:
        yield SocketSink(request, descriptor)


def enlarge_send_buffer(transport: asyncio.BaseTransport, size: int = UNIX_SEND_BUFFER) -> None:
    """Let a unix socket take more bytes at once. The system adjusts other sockets."""
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def unsent(descriptor: int) -> int:
    """The bytes in the socket's send buffer; 0 if the system does not report them."""
    with suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    return 0
