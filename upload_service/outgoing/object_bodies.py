"""Objects at signed URLs, whose bytes the system moves to the caller's connection without reading them here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from common.http.zero_copy.responses import DetachedBody, detach_body
from common.service_client.client import connector
from common.service_client.transport import HttpTransport

TIMEOUT = 2.5  # seconds until the response begins
PAUSE = 25.0  # seconds until the next bytes arrive


@asynccontextmanager
async def open_object(url: str, start: int, length: int) -> AsyncIterator[DetachedBody | None]:
    """The bytes from `start` on; None if they must be read in another way: encrypted, or after an error."""
    address = URL(url, encoded=True)
    if address.scheme != "http":
        yield None
        return
    base, headers = str(address.origin()), CIMultiDict(Range=f"bytes={start}-{start + length - 1}")
    async with connector(base, 1) as connections:
        try:
            reply = await HttpTransport(connections, base).request(
                "GET", address.raw_path_qs, headers, None, timeout=TIMEOUT, pause=PAUSE, streamed=True
            )
        except (ClientError, HttpProcessingError, OSError):
            yield None
            return
        try:
            is_complete = reply.status == 206 and reply.content_length == length
            yield detach_body(reply, length) if is_complete else None
        finally:
            reply.close()
