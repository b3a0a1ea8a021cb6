"""Sends requests whose bodies arrive while they are sent. The service may answer before the end of a body."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from aiohttp import ClientConnectionError, hdrs
from aiohttp.http import StreamWriter
from multidict import CIMultiDict

from common.concurrency.limits import loop_timeout
from common.service_client.transport import HttpReply, HttpTransport, read_head


class RequestBody(Protocol):
    """A body that arrives while it is sent."""

    async def send(self, writer: StreamWriter, *, stall_timeout: float) -> None: ...


class NotConnected(ClientConnectionError):
    """There was no connection; nothing of the body was taken."""


class BodyTransport(HttpTransport):
    """Sends requests with bodies to one replica of a service."""

    async def send_body(
        self, method: str, target: str, headers: CIMultiDict[str], body: RequestBody, *, timeout: float
    ) -> HttpReply:
        """Send a request with a body as it arrives, and return the response; the caller must close it.

        `timeout` is the seconds from the end of the body until the response begins, and the longest time in which the
        service takes and sends nothing. A service may answer before the end of the body.

        Raises NotConnected: no byte of the body was taken. Others as `request` and `body` do.
        """
        try:
            connection, protocol = await self.connect(method, timeout)
        except (ClientConnectionError, TimeoutError) as error:
            raise NotConnected from error
        loop = asyncio.get_running_loop()
        headers[hdrs.HOST] = self.host
        writer = StreamWriter(protocol, loop)
        if hdrs.CONTENT_LENGTH not in headers:
            headers[hdrs.TRANSFER_ENCODING] = "chunked"
            writer.enable_chunking()
        answer = asyncio.create_task(read_head(protocol))
        try:
            await writer.write_headers(f"{method} {self.prefix}{target} HTTP/1.1", headers)
            if not await _finishes_before(answer, body.send(writer, stall_timeout=timeout)):
                protocol.force_close()  # The service would take the next request for the rest of this body.
            async with loop_timeout(timeout):
                head, content = await answer
        except BaseException:
            answer.cancel()
            connection.close()
            raise
        return HttpReply(connection, head, content)


async def _finishes_before(answer: asyncio.Future[Any], sending: Coroutine[Any, Any, None]) -> bool:
    """Send until the answer begins. Returns whether all was sent; a service that has gone may have answered, too."""
    loop, is_sending = asyncio.get_running_loop(), True

    def stop(_: object) -> None:
        if is_sending:
            limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            answer.add_done_callback(stop)
            try:
                await sending
            finally:
                is_sending = False
                answer.remove_done_callback(stop)
    except ConnectionResetError:
        return False
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True
