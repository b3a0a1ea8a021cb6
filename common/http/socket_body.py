"""A large part of a request's body, which one worker thread moves from the socket to where it belongs.

A body that the event loop reads is copied, queued and handed to threads in many small blocks. Here the thread calls
`recv_into` itself. What holds:

- Only one side reads: the transport is paused before the first `recv_into`, and resumed after the last one.
- The thread receives at most `length` bytes, all of this request. The end of the body, and what the connection brings
  after it, are read by aiohttp, as ever.
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
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from common.errors import InvalidRequest
from common.http import bodies
from common.http.aiohttp_private import ServerConnection

LEAST = 2 << 20  # bytes; with fewer, the event loop is as fast
BUFFER = 256 << 10  # bytes, which stay in a processor's cache between the calls
VISIT = 32 << 20  # bytes of one visit to a thread, which other work needs too
PATIENCE = 0.01  # seconds that a visit waits for a sender
SLOW = 64 << 10  # bytes; a visit that gets fewer is followed by a pause, and then by one without patience
PAUSE = 0.02  # seconds in which a slow sender's bytes collect
_ZEROS = bytes(BUFFER)

Block = bytes | memoryview


class Sink(Protocol):
    """Gets the bytes in a worker thread. `end` follows the last of them."""

    def write(self, blocks: Sequence[Block]) -> None: ...
    def end(self) -> None: ...


class SocketBody:
    """The next `length` bytes of a request's body, if `can_receive` is true of them."""

    def __init__(self, request: web.Request, length: int) -> None:
        self._request = request
        self._length = length
        self._stopped = False
        self._wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return self._length

    @staticmethod
    def can_receive(request: web.Request, position: int, length: int) -> bool:
        """Whether so many bytes and an end follow the first `position` ones, on a socket without encryption."""
        transport, size = request.transport, request.content_length
        if length < LEAST or size is None or transport is None or transport.get_extra_info("sslcontext") is not None:
            return False
        connection = transport.get_extra_info("socket")
        if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}:
            return False
        return size - position > length

    def stop(self) -> None:
        """End `receive` soon: it raises InvalidRequest, as for a body that ended early."""
        self._stopped = True
        self._wake()

    async def receive(self, sink: Sink) -> None:
        """Give all bytes to `sink`; a cancellation is like `stop`.

        Raises InvalidRequest: the sender has gone or is too slow. The errors of `sink` are raised, too.
        """
        request, transport = self._request, self._request.transport
        blocks, left = self._take_arrived()
        if transport is None:
            raise _broken()
        transport.pause_reading()
        try:
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as connection:
                connection.setblocking(False)
                await self._receive(_Receiver(connection, left, sink, blocks))
        finally:
            if not cast("ServerConnection", request.protocol).is_reading_paused:
                transport.resume_reading()

    def _take_arrived(self) -> tuple[list[bytes], int]:
        """The bytes that aiohttp has already read, and the number of those that follow in the socket."""
        content, blocks, left = self._request.content, list[bytes](), self._length
        try:
            while left and (block := content.read_nowait(left)):  # Reading may let the parser go on.
                blocks.append(block)
                left -= len(block)
        except (web.RequestPayloadError, HttpProcessingError):
            raise _broken() from None
        return blocks, left

    async def _receive(self, receiver: "_Receiver") -> None:
        loop = asyncio.get_running_loop()
        progress, remaining, patience = 0, bodies.TIMEOUT, PATIENCE
        while True:
            before = receiver.left
            visit = loop.run_in_executor(None, receiver.visit, patience)
            while not visit.done():
                try:
                    await asyncio.wait([visit])
                except asyncio.CancelledError:  # The thread must leave the socket before it is closed.
                    self._stopped = True
            received = before - receiver.left
            self._count(received)
            visit.result()
            if receiver.is_done:
                return
            progress += received
            if progress >= bodies.PROGRESS:
                progress, remaining = 0, bodies.TIMEOUT
            started = loop.time()
            if receiver.is_waiting:
                await self._until_readable(loop, receiver.connection.fileno(), remaining)
                patience = 0 if received < SLOW else PATIENCE
                if not patience:
                    await asyncio.sleep(PAUSE)
            remaining -= loop.time() - started
            if self._stopped or self._request.transport is None:
                raise _broken()

    async def _until_readable(self, loop: asyncio.AbstractEventLoop, descriptor: int, timeout: float) -> None:
        is_ready = asyncio.Event()
        self._wake = is_ready.set
        loop.add_reader(descriptor, is_ready.set)
        try:
            async with asyncio.timeout(max(timeout, 0)):
                if not self._stopped:
                    await is_ready.wait()
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.") from None
        finally:
            loop.remove_reader(descriptor)

    def _count(self, received: int) -> None:
        """Let the parser count bytes that it has not seen."""
        content, protocol = self._request.content, self._request.protocol
        while received and content.exception() is None:
            zeros = _ZEROS[:received]
            protocol.data_received(zeros)
            content.read_nowait()
            received -= len(zeros)


class _Receiver:
    """The state of `SocketBody.receive` that its thread changes, one visit after the other."""

    def __init__(self, connection: socket.socket, left: int, sink: Sink, arrived: Sequence[Block]) -> None:
        self.connection = connection
        self.left = left  # bytes that are still in the socket or on their way
        self.is_done = self.is_waiting = False
        self._sink = sink
        self._arrived = arrived

    def visit(self, patience: float) -> None:
        """Receive what there is. `is_done` says that nothing is left, `is_waiting` that the sender is slower."""
        if self._arrived:
            self._sink.write(self._arrived)
            self._arrived = ()
        self._receive_until(max(0, self.left - VISIT), time.monotonic() + patience)
        if not self.left:
            self._sink.end()
            self.is_done = True

    def _receive_until(self, left: int, deadline: float) -> None:
        buffer, filled = memoryview(bytearray(min(BUFFER, self.left))), 0
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        self.is_waiting = False
        while self.left > left:
            try:
                count = self.connection.recv_into(buffer[filled:], min(len(buffer) - filled, self.left))
            except BlockingIOError:
                wait = deadline - time.monotonic()
                if wait <= 0 or not poll.poll(wait * 1000):
                    self.is_waiting = True
                    break
            except ConnectionError:
                raise _broken() from None
            else:
                if not count:
                    raise _broken()
                filled += count
                self.left -= count
                if filled == len(buffer):
                    self._sink.write([buffer])
                    filled = 0
        if filled:
            self._sink.write([buffer[:filled]])


def _broken() -> InvalidRequest:
    return InvalidRequest("The body is broken or ended early.")
