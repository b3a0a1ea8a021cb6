"""A large part of a request's body, which one worker thread moves from the socket to where it belongs.

A body that the event loop reads is copied, queued and handed to threads in many small blocks. Here the thread calls
`recv_into` itself, and searches the bytes for the delimiter that ends the part. What holds:

- Only one side reads: the transport is paused before the first `recv_into`, and resumed after the last one.
- The thread receives at most `limit` bytes, all of this request's body. aiohttp reads the rest of the body, and what
  follows it on the connection.
- The sink gets the bytes before the delimiter, no more and no fewer. `rest` is what was received after them: it begins
  with the delimiter, or is shorter than one if `limit` bytes came without it. No byte is in both.
- aiohttp's parser counts every byte: for each byte that was received here it gets a zero, which is dropped. So its
  position is right after a success, an error, a disconnection or a cancellation.
- A thread waits milliseconds for a fast sender, and not at all for a slow one. The event loop waits for those, with the
  same limit as `common.http.bodies.body`.
- The descriptor is a duplicate, closed after the last visit of the thread. The system cannot reuse its number before.
"""

import asyncio
import os
import select
import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multipart import MultipartSegment

from common.errors import InvalidRequest
from common.http import bodies
from common.http.aiohttp_private import ServerConnection
from common.http.zero_copy.sources import in_thread, until_ready

LEAST = 512 << 10  # bytes; with fewer, the event loop is as fast
BUFFER = 256 << 10  # bytes, which stay in a processor's cache between the calls
VISIT = 32 << 20  # bytes of one visit to a thread, which other work needs too
VISIT_TIMEOUT = 0.01  # seconds that a visit waits for a sender
SLOW = 64 << 10  # bytes; a visit that gets fewer is followed by a pause, and then by one that does not wait
PAUSE = 0.02  # seconds in which a slow sender's bytes collect
HEAD_END = b"\r\n\r\n"
MAX_HEAD = 16 << 10  # bytes
MAX_HEADS = 64  # before that of the file; a form has a dozen
END = len(b"--\r\n")  # after the last delimiter


class Sink(Protocol):
    """Gets the bytes of a part in a worker thread. `end` follows the last of them, if the part ended."""

    def write(self, block: memoryview) -> None: ...
    def end(self) -> None: ...


class SocketBody:
    """The bytes of a part that begin with `start`, and that follow in the socket: at most `limit` bytes of the body.

    `can_receive` must be true of the request. After `receive`, the length is the number of bytes that the sink got.
    """

    def __init__(self, request: web.Request, start: bytes, limit: int, delimiter: bytes) -> None:
        self.limit = limit
        self.rest = b""
        self._request = request
        self._start = start
        self._delimiter = delimiter
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @staticmethod
    def can_receive(request: web.Request) -> bool:
        """Whether the body is long, and its socket is without encryption."""
        if (request.content_length or 0) < LEAST:
            return False
        transport = request.transport
        if transport is None or transport.get_extra_info("sslcontext"):
            return False
        connection = transport.get_extra_info("socket")
        return connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}

    async def receive(self, sink: Sink) -> None:
        """Give all bytes of the part to `sink`. A cancellation waits for the thread.

        Raises InvalidRequest: the sender has gone or is too slow. The errors of `sink` are raised, too.
        """
        request, transport = self._request, self._request.transport
        arrived = self._take_arrived()
        if transport is None or transport.is_closing():
            raise _broken()
        transport.pause_reading()
        try:
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as connection:
                connection.setblocking(False)
                receiver = _Receiver(connection, self.limit - len(arrived), sink, self._delimiter, arrived)
                await self._receive(receiver)
        finally:
            if not cast("ServerConnection", request.protocol).is_reading_paused:
                transport.resume_reading()
        self._length, self.rest = receiver.written, receiver.pending

    def _take_arrived(self) -> bytes:
        """The bytes that aiohttp has already read."""
        content, blocks, left = self._request.content, [self._start], self.limit - len(self._start)
        try:
            while left and (block := content.read_nowait(left)):  # Reading may let the parser go on.
                blocks.append(block)
                left -= len(block)
        except (web.RequestPayloadError, HttpProcessingError):
            raise _broken() from None
        return b"".join(blocks)

    async def _receive(self, receiver: "_Receiver") -> None:
        loop = asyncio.get_running_loop()
        progress, remaining, timeout = 0, bodies.TIMEOUT, VISIT_TIMEOUT
        while True:
            before = receiver.left
            try:
                await in_thread(partial(receiver.visit, timeout))
            finally:
                received = before - receiver.left
                cast("ServerConnection", self._request.protocol).count(self._request.content, received)
            if receiver.is_done:
                return
            progress += received
            if progress >= bodies.PROGRESS:
                progress, remaining = 0, bodies.TIMEOUT
            started = loop.time()
            if receiver.is_waiting:
                await self._until_readable(loop, receiver.connection.fileno(), remaining)
                timeout = 0 if received < SLOW else VISIT_TIMEOUT
                if not timeout:
                    await asyncio.sleep(PAUSE)
            remaining -= loop.time() - started
            if self._request.transport is None:
                raise _broken()

    async def _until_readable(self, loop: asyncio.AbstractEventLoop, descriptor: int, timeout: float) -> None:
        try:
            async with asyncio.timeout(max(timeout, 0)):
                await until_ready(loop.add_reader, loop.remove_reader, descriptor)
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.") from None


class _Receiver:
    """The state of `SocketBody.receive` that its thread changes, one visit after the other."""

    def __init__(self, connection: socket.socket, left: int, sink: Sink, delimiter: bytes, arrived: bytes) -> None:
        self.connection = connection
        self.left = left  # bytes that may be received
        self.pending = arrived  # bytes that are not written yet: they may begin the delimiter
        self.written = 0  # bytes
        self.is_done = self.is_waiting = False
        self._sink = sink
        self._delimiter = delimiter
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def visit(self, timeout: float) -> None:
        """Receive what there is. `is_done`: the part or the limit ended; `is_waiting`: the sender is slow."""
        buffer, filled = bytearray(len(self.pending) + min(BUFFER, self.left)), len(self.pending)
        view = memoryview(buffer)
        view[:filled] = self.pending
        last, deadline = max(0, self.left - VISIT), time.monotonic() + timeout
        self.is_waiting = False
        while self.left > last and not self.is_done and not self.is_waiting:
            try:
                if not (count := self.connection.recv_into(view[filled:], min(len(view) - filled, self.left))):
                    raise _broken()
                filled += count
                self.left -= count
            except BlockingIOError:
                wait = deadline - time.monotonic()
                self.is_waiting = wait <= 0 or not self._poll.poll(wait * 1000)
            except OSError:  # The network may be gone, too, or the connection timed out.
                raise _broken() from None
            if filled == len(view) or self.is_waiting:
                filled = self._write(buffer, view, filled)
        if not self.is_done:
            filled = self._write(buffer, view, filled)
        self.pending = bytes(view[:filled])
        self.is_done = self.is_done or not self.left

    def _write(self, buffer: bytearray, view: memoryview, filled: int) -> int:
        """Write what is before the delimiter, move the rest to the front of the buffer, and return its length."""
        end = buffer.find(self._delimiter, 0, filled)
        stop = end if end >= 0 else max(0, filled - len(self._delimiter) + 1)
        if stop:
            self._sink.write(view[:stop])
            self.written += stop
            view[: filled - stop] = view[stop:filled]
        if end >= 0:
            self._sink.end()
            self.is_done = True
        return filled - stop


def _broken() -> InvalidRequest:
    return InvalidRequest("The body is broken or ended early.")


async def large_part_events(
    request: web.Request, name: str, length: int | None
) -> AsyncIterator[MultipartSegment | bytes | SocketBody | None]:
    """As `multipart_events`. The event after the head of a file `name` may be one that is still in the socket.

    Such a file has `length` bytes. If that is unknown, the last `FORM_LIMIT` bytes of the body are never part of it.
    """
    blocks, buffer, position = bodies.body(request), b"", 0
    heads = MAX_HEADS if SocketBody.can_receive(request) else 0
    with bodies.well_formed():
        parser = bodies.multipart_parser(request.headers.get("Content-Type", ""))
        delimiter = b"\r\n--" + parser.boundary
        while True:
            while not buffer or (heads and HEAD_END not in buffer and len(buffer) < MAX_HEAD):
                block = await anext(blocks, b"")
                buffer += block
                position += len(block)
                if not block:
                    heads = 0
                    break
            if not buffer:
                break
            piece, end, buffer = buffer.partition(HEAD_END) if heads else (buffer, b"", b"")
            heads = heads - 1 if end else 0
            event = None
            if not parser.closed:
                for event in parser.parse(piece + end):
                    yield event
            if not heads or not isinstance(event, MultipartSegment) or not _is_file(event, name):
                continue
            limit = (request.content_length or 0) - position + len(buffer)  # bytes that follow the head
            limit = limit - bodies.FORM_LIMIT if length is None else min(limit, length + len(delimiter) + END)
            if limit - len(buffer) >= LEAST:
                part = SocketBody(request, buffer, limit, delimiter)
                yield part
                buffer, heads = part.rest, 0
        parser.close()


def _is_file(segment: MultipartSegment, name: str) -> bool:
    """Whether a part is a file of this name. The parser checks a length of its own."""
    return segment.name == name and bool(segment.filename) and segment.header("Content-Length") is None
