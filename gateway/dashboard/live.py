"""What happens while a page is open, as server-sent events: each upload that is finished, whoever sent it."""

import asyncio
import time

import orjson
from aiohttp import web

from common.events import Event
from common.middleware import ROUTE
from common.redis import RedisError
from gateway.dashboard.visits import Visit
from gateway.keys import LIVE, SESSIONS
from gateway.live import Watcher

HEARTBEAT = 20.0  # seconds; what stands before us would end a connection on which nothing comes
RETURN = 3000  # ms after which a browser comes back
ROUTE_OF_ITS_OWN = "/{tenant_id}/dashboard/live"  # It lasts for as long as the page is open: no page takes so long.
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(visit: Visit) -> web.StreamResponse:
    """Tell the browser until it goes, its session ends, or we do. Raises Overloaded."""
    request = visit.request
    request[ROUTE] = ROUTE_OF_ITS_OWN
    with request.app[LIVE].watching(visit.caller.tenant_id) as watcher:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % RETURN)
        while await _lives(visit):
            try:
                event = await _next(watcher, min(HEARTBEAT, visit.session.ends_at - time.time()))
            except TimeoutError:
                await response.write(b":\n\n")
                continue
            if event is None:
                break
            await response.write(b"event: %s\ndata: %s\n\n" % (event.type.encode(), orjson.dumps(event.data)))
        await response.write_eof()
    return response


async def _next(watcher: Watcher, patience: float) -> Event | None:
    async with asyncio.timeout(patience):
        return await watcher.get()


async def _lives(visit: Visit) -> bool:
    """Whether the session does; one that is only looked at is not used by that."""
    try:
        return await visit.request.app[SESSIONS].lives(visit.session)
    except RedisError:
        return False
