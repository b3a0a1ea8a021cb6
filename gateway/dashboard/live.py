"""What happens while a page is open, as server-sent events: each upload that is finished, whoever sent it."""

import asyncio
import time

import orjson
from aiohttp import web

from common.errors import Overloaded
from common.events import Event
from common.middleware import ROUTE
from common.redis import RedisError
from gateway.dashboard.visits import Visit
from gateway.keys import LIVE, SESSIONS
from gateway.live import SOON, End, Watcher

HEARTBEAT = 20.0  # seconds; what stands before us would end a connection on which nothing comes
READ_PATIENCE = 8.0  # seconds that a browser has for what it is told, less than requests have when we stop
ROUTE_OF_ITS_OWN = "/{tenant_id}/dashboard/live"  # It lasts for as long as the page is open: no page takes so long.
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(visit: Visit) -> web.StreamResponse:
    """Tell the browser until it goes or reads no more, its session ends, or we do. Raises Overloaded."""
    request = visit.request
    request[ROUTE] = ROUTE_OF_ITS_OWN
    with request.app[LIVE].watching(visit.caller.tenant_id, visit.caller.username) as watcher:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await _write(request, response, _return_in(SOON))
        while await _lives(visit):
            try:
                told = await _next(watcher, min(HEARTBEAT, visit.session.ends_at - time.time()))
            except TimeoutError:
                await _write(request, response, b":\n\n")
                continue
            if isinstance(told, End):
                await _write(request, response, _return_in(told.back_in))
                break
            words = b"event: %s\ndata: %s\n\n" % (told.type.encode(), orjson.dumps(told.data))
            await _write(request, response, words)
    await response.write_eof()
    return response


def _return_in(seconds: int) -> bytes:
    """After how long the browser comes back once this is over."""
    return b"retry: %d\n\n" % (seconds * 1000)


async def _next(watcher: Watcher, patience: float) -> Event | End:
    async with asyncio.timeout(patience):
        return await watcher.get()


async def _write(request: web.Request, response: web.StreamResponse, words: bytes) -> None:
    """Write until it is on its way. Raises ConnectionError, and ends the connection, where nobody reads."""
    try:
        async with asyncio.timeout(READ_PATIENCE):
            await response.write(words)
            await request.writer.drain()  # aiohttp would let some of it wait.
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionError("The browser does not read.") from None


async def _lives(visit: Visit) -> bool:
    """Whether the session does; one that is only looked at is not used by that."""
    try:
        return await visit.request.app[SESSIONS].lives(visit.session)
    except (RedisError, Overloaded):
        return False
