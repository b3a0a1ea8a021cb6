"""Bytes that the system moves to a caller's connection by itself: none of them is copied, or even seen, here."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import BinaryIO

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from common.http import bodies, connection_limits
from common.http.file_descriptors import PIPE, duplicate, pipe, readable, splice_nonblocking, unsent, writable

MAX_CHUNK = 1 << 20  # bytes at most until others have their turn
UNIX_SEND_BUFFER = 1 << 20  # bytes that may wait in a unix socket; what the system gives is a fifth of it
CAN_SPLICE = hasattr(os, "splice")
_ZEROS = bytes(PIPE)

Move = Callable[[int, int], int]


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


async def splice_body(request: web.Request, writer: AbstractStreamWriter) -> None:
    """Send what has come of a body on, and let the system move what is still to come.

    The request's own parser is told of as many zeros, so that it is where the connection is, whatever happens. Where
    the body ends early there is nothing more to do here: who reads on in `request.content` learns why.

    Raises:
        InvalidRequest: the body comes too slowly, as for `common.http.bodies.body`.
        ConnectionError: the other connection is no more.
    """
    source, sink = request.transport, writer.transport
    if source is None or sink is None:
        return
    blocks = list(iter(request.content.read_nowait, b""))
    source.pause_reading()
    try:
        writer.send_headers()  # They wait for the first block, and there may be none yet.
        for block in blocks:
            await writer.write(block)
        sink.set_write_buffer_limits(high=0)
        await writer.drain()
        with duplicate(source) as inlet, duplicate(sink) as outlet, pipe() as between:
            await _splice_rest(request, inlet, between, outlet)
    finally:
        source.resume_reading()
        if not sink.is_closing():  # uvloop raises where it is closed.
            sink.set_write_buffer_limits()


async def _splice_rest(request: web.Request, source: int, between: tuple[int, int], sink: int) -> None:
    pace, content = bodies.ReadRate(), request.content
    # Counted here: while the server stops, its parser takes nothing any more. What follows the body is another request.
    left = (request.content_length or 0) - content.total_bytes
    reading, writing = between
    while left and request.transport is not None:
        try:
            moved = splice_nonblocking(source, writing, min(left, PIPE))
        except BlockingIOError:
            async with pace:
                await readable(source)
            continue
        except ConnectionError:
            return
        if not moved:
            return
        left -= moved
        request.protocol.data_received(_ZEROS[:moved])
        content.read_nowait()
        request.transport.pause_reading()  # Whoever reads lets more come.
        pace.record(moved)
        while moved:
            try:
                moved -= splice_nonblocking(reading, sink, moved)
            except BlockingIOError:
                await writable(sink)


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
