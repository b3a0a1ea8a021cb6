"""The body of a caller's request, which a service gets unchanged; the kernel moves the rest of a large one.

What holds meanwhile:

- Nobody else reads the caller's socket: its transport is paused. Nobody else writes to the service's socket: its
  transport has sent all its bytes.
- No byte after this request is taken. The pipe belongs to this request alone, and is closed with it.
- The next block is taken once the service's socket has the one before: a slow service slows its caller down.
- The descriptors are duplicates, closed after the last move. The system cannot reuse their numbers before.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from common.concurrency.limits import loop_timeout
from common.errors import InvalidRequest, Problem
from common.http import bodies
from common.http.aiohttp_private import ServerConnection
from common.http.zero_copy.responses import MAX_CHUNK, enlarge_send_buffer
from common.http.zero_copy.sources import CAN_SPLICE, ConnectionSource, Side, duplicate, move, pipe, until_ready

SPLICE_THRESHOLD = 256 << 10  # bytes that have not arrived yet; with fewer, the event loop is as fast


class CallerBody(AsyncIterator[bytes]):
    """A request body of at most `limit` bytes. `problem` is the caller's mistake that ended it."""

    def __init__(self, request: web.Request, limit: int | None = None) -> None:
        self._request = request
        self._is_limited = limit is not None
        self._blocks = bodies.body(request, limit=limit, joined=False)
        self.problem: Problem | None = None

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._blocks)
        except Problem as problem:
            self.problem = problem
            raise

    async def send(self, writer: StreamWriter, *, stall_timeout: float) -> None:
        """Send the whole body to a service, after the head that `writer` has.

        Raises InvalidRequest or BodyTooLarge for the caller's mistake, ConnectionResetError if the service has gone,
        and TimeoutError if it takes nothing, or less than a block that arrived, for `stall_timeout` seconds.
        """
        if not self._prepare_splice(writer):
            async for block in self:
                async with loop_timeout(stall_timeout):
                    await writer.write(block)
            await writer.write_eof()
            return
        try:
            await self._splice(writer, stall_timeout)
        except Problem as problem:
            self.problem = problem
            raise

    def _prepare_splice(self, writer: StreamWriter) -> bool:
        """Whether the rest of the body can be spliced."""
        length, content = self._request.content_length, self._request.content
        if not CAN_SPLICE or self._is_limited or "Content-Encoding" in self._request.headers:
            return False
        if length is None or length - content.total_bytes < SPLICE_THRESHOLD:
            return False
        source, sink = self._request.transport, writer.transport
        if source is None or sink is None or source.get_extra_info("sslcontext") or sink.get_extra_info("sslcontext"):
            return False  # The kernel moves bytes as they are.
        enlarge_send_buffer(sink)
        sink.set_write_buffer_limits(high=0)  # `drain` waits until the transport has written everything.
        return True

    async def _splice(self, writer: StreamWriter, stall_timeout: float) -> None:
        """Write what has arrived, and let the kernel move the rest."""
        request, content = self._request, self._request.content
        blocks, source, sink = self._take_arrived(), request.transport, writer.transport
        if source is None:
            raise _broken()
        source.pause_reading()
        length, taken = (request.content_length or 0) - content.total_bytes, 0
        try:
            async with loop_timeout(stall_timeout):
                for block in blocks:
                    await writer.write(block)
                writer.send_headers()
                await writer.drain()
            if sink is None or sink.is_closing() or sink.get_write_buffer_size():
                raise ConnectionResetError("The service has gone.")
            if source.is_closing():  # The number of its descriptor may belong to another connection.
                raise _broken()
            with duplicate(source) as incoming, duplicate(sink) as outgoing, pipe() as (reading, writing):
                rest = ConnectionSource(incoming, reading, writing, timeout=bodies.TIMEOUT)
                try:
                    await _move_all(rest, outgoing, length, stall_timeout)
                finally:
                    taken = rest.taken
        finally:
            cast("ServerConnection", request.protocol).skip_body(content, taken, length - taken)

    def _take_arrived(self) -> list[bytes]:
        try:
            return list(iter(self._request.content.read_nowait, b""))  # Reading may let the parser go on.
        except (web.RequestPayloadError, HttpProcessingError):
            raise _broken() from None


async def _move_all(source: ConnectionSource, sink: int, length: int, stall_timeout: float) -> None:
    """Move `length` bytes of the caller to the service.

    Raises:
        InvalidRequest: the caller has gone, or is too slow by the limit of `common.http.bodies.body`.
        ConnectionResetError: the service has gone.
        TimeoutError: the service takes nothing for `stall_timeout` seconds.
    """
    loop, progress = asyncio.get_running_loop(), 0
    while length:
        try:
            moved, waiting = move(source, sink, min(length, MAX_CHUNK))
        except EOFError:
            raise _broken() from None
        except OSError:  # The network may be gone, too, or the connection timed out.
            raise ConnectionResetError("The service has gone.") from None
        length -= moved
        progress += moved
        if waiting is Side.SOURCE:
            if progress >= bodies.PROGRESS:
                progress, source.timeout = 0, bodies.TIMEOUT
            started = loop.time()
            try:
                await source.wait()
            except TimeoutError:
                raise InvalidRequest("The body came too slowly.") from None
            source.timeout -= loop.time() - started
        elif waiting is Side.SINK:
            async with asyncio.timeout(stall_timeout):
                await until_ready(loop.add_writer, loop.remove_writer, sink)
        else:
            await asyncio.sleep(0)


def _broken() -> InvalidRequest:
    return InvalidRequest("The body is broken or ended early.")
