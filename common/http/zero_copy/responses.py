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
from typing import BinaryIO, NamedTuple, Protocol

from aiohttp import StreamReader, web
from aiohttp.connector import Connection

from common.http import connection_limits
from common.http.zero_copy.sources import (
    CAN_SPLICE,
    Block,
    BlockSource,
    ConnectionSource,
    FileRange,
    Side,
    Source,
    duplicate,
    move,
    pipe,
    until_ready,
)

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


class StreamedResponse(Protocol):
    """A response of a service whose body may still be arriving."""

    @property
    def content(self) -> StreamReader: ...
    @property
    def connection(self) -> Connection | None: ...


class DetachedBody(NamedTuple):
    """The blocks that were received already, and the connection on which the `rest` bytes arrive, if any."""

    blocks: Sequence[bytes]
    connection: asyncio.Transport | None
    rest: int


def detach_body(response: StreamedResponse, length: int) -> DetachedBody | None:
    """Stop aiohttp's reading of a body with this length; None if the system cannot move bytes.

    The connection ends with the response. Raises EOFError, or what else ended the body early.
    """
    if not CAN_SPLICE or _is_encrypted(response.connection):
        return None
    blocks = list(iter(response.content.read_nowait, b""))  # This may resume the reading.
    connection, rest = response.connection, length - response.content.total_bytes
    if not rest:
        return DetachedBody(blocks, None, 0)
    if connection is None or connection.protocol is None or connection.transport is None:
        raise EOFError
    connection.protocol.pause_reading()
    return DetachedBody(blocks, connection.transport, rest)


def _is_encrypted(connection: Connection | None) -> bool:
    """Whether the bytes on a connection are not those of the body."""
    transport = connection.transport if connection else None
    return transport is not None and transport.get_extra_info("sslcontext") is not None
