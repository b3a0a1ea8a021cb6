"""What happens while a page is open, as server-sent events: each upload that is finished, whoever sent it."""

import asyncio
import time
from contextlib import suppress
from ipaddress import ip_address

import orjson
from aiohttp import web

from common.errors import Problem
from common.events import Event
from common.http.middleware import ROUTE
from common.redis import RedisError
from gateway.app_keys import EVENT_HUB, SESSIONS, TENANTS
from gateway.dashboard.page_request import PageRequest
from gateway.upload_events import SOON, StreamEnd, Watcher

HEARTBEAT = 20.0  # seconds; what stands before us would end a connection on which nothing comes
READ_TIMEOUT = 8.0  # seconds that a browser has for what it is told, less than requests have when we stop
ROUTE_OF_ITS_OWN = "/{tenant_id}/dashboard/live"  # It lasts for as long as the page is open: no page takes so long.
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(visit: PageRequest) -> web.StreamResponse:
    """Tell the browser until it goes, reads no more, or may listen no more, or until we end. Raises Overloaded."""
    request = visit.request
    request[ROUTE] = ROUTE_OF_ITS_OWN
    with request.app[EVENT_HUB].subscribe(visit.caller.tenant_id, visit.caller.username) as watcher:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await _write(request, response, _return_in(SOON))
        while True:
            told = await _next(watcher, min(HEARTBEAT, visit.session.ends_at - time.time()))
            if not await _may_listen(visit):
                break
            await _write(request, response, _in_words(told))
            if isinstance(told, StreamEnd):
                break
    await response.write_eof()
    return response


def _return_in(seconds: int) -> bytes:
    """After how long the browser comes back once this is over."""
    return b"retry: %d\n\n" % (seconds * 1000)


def _in_words(told: Event | StreamEnd | None) -> bytes:
    match told:
        case None:
            return b":\n\n"
        case StreamEnd(back_in):
            return _return_in(back_in)
    return b"event: %s\ndata: %s\n\n" % (told.type.encode(), orjson.dumps(told.data))


async def _next(watcher: Watcher, timeout: float) -> Event | StreamEnd | None:
    """What is told next; None where nothing is for so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            return await watcher.get()
    return None


async def _write(request: web.Request, response: web.StreamResponse, words: bytes) -> None:
    """Write until it is on its way. Raises ConnectionError, and ends the connection, where nobody reads."""
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            await response.write(words)
            await request.writer.drain()  # aiohttp would let some of it wait.
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionError("The browser does not read.") from None


async def _may_listen(visit: PageRequest) -> bool:
    """Whether the session lives, and the tenant still takes requests from there; a session is not used by that."""
    app, tenant_id = visit.request.app, visit.caller.tenant_id
    try:
        if not await app[SESSIONS].is_alive(visit.session):
            return False
        look = await app[SESSIONS].touch(tenant_id)
        tenant = await app[TENANTS].find(tenant_id, look.tenant_version, changing=look.changing)
    except (RedisError, Problem):
        return False
    return tenant.allows(ip_address(visit.caller.ip))
