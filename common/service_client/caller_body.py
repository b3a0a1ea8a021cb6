"""The body of a caller's request, which a service gets unchanged."""

from collections.abc import AsyncIterator
from typing import cast

from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from common.concurrency.byte_sources import CAN_SPLICE
from common.concurrency.limits import loop_timeout
from common.errors import InvalidRequest, Problem
from common.http.aiohttp_private import ServerConnection
from common.http.bodies import body
from common.http.zero_copy import enlarge_send_buffer
from common.service_client.splicing import Splice

SPLICE_THRESHOLD = 256 << 10  # bytes that have not arrived yet; with fewer, the event loop is as fast


class CallerBody(AsyncIterator[bytes]):
    """A request body of at most `limit` bytes. `problem` is the caller's mistake that ended it."""

    def __init__(self, request: web.Request, limit: int | None = None) -> None:
        self._request = request
        self._is_limited = limit is not None
        self._blocks = body(request, limit=limit, joined=False)
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
        length = (request.content_length or 0) - content.total_bytes
        splice = Splice(length, stall_timeout=stall_timeout)
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
            await splice.run(source, sink)
        finally:
            cast("ServerConnection", request.protocol).skip_body(content, length - splice.left, splice.left)

    def _take_arrived(self) -> list[bytes]:
        try:
            return list(iter(self._request.content.read_nowait, b""))  # Reading may let the parser go on.
        except (web.RequestPayloadError, HttpProcessingError):
            raise _broken() from None


def _broken() -> InvalidRequest:
    return InvalidRequest("The body is broken or ended early.")
