"""Finished uploads of the tenant as server-sent events, while a page is open."""

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

HEARTBEAT = 20.0  # seconds; a proxy closes an idle connection
READ_TIMEOUT = 8.0  # seconds for a browser to read an event, less than the shutdown gives requests
METRICS_ROUTE = "/{tenant_id}/dashboard/live"  # separate from the pages, because a stream lasts as long as its page
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(page: PageRequest) -> web.StreamResponse:
    """Send events until the browser leaves or is too slow, the session ends, or the server stops. Raises Overloaded."""
    request = page.request
    request[ROUTE] = METRICS_ROUTE
    with request.app[EVENT_HUB].subscribe(page.caller.tenant_id, page.caller.username) as watcher:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await _write(request, response, _retry_after(SOON))
        while True:
            event = await _next_event(watcher, min(HEARTBEAT, page.session.ends_at - time.time()))
            if not await _is_allowed(page):
                break
            await _write(request, response, _sse_message(event))
            if isinstance(event, StreamEnd):
                break
    await response.write_eof()
    return response


def _retry_after(seconds: int) -> bytes:
    return b"retry: %d\n\n" % (seconds * 1000)


def _sse_message(event: Event | StreamEnd | None) -> bytes:
    match event:
        case None:
            return b":\n\n"
        case StreamEnd(seconds):
            return _retry_after(seconds)
    return b"event: %s\ndata: %s\n\n" % (event.type.encode(), orjson.dumps(event.data))


async def _next_event(watcher: Watcher, timeout: float) -> Event | StreamEnd | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            return await watcher.get()
    return None


async def _write(request: web.Request, response: web.StreamResponse, message: bytes) -> None:
    """Write a message and wait until the socket takes it. Raises ConnectionError for a browser that does not read."""
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            await response.write(message)
            await request.writer.drain()  # aiohttp keeps a part in its own buffer otherwise.
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionError("The browser does not read.") from None


async def _is_allowed(page: PageRequest) -> bool:
    """Whether the session exists and the tenant allows the address. This check does not extend the session."""
    app, tenant_id = page.request.app, page.caller.tenant_id
    try:
        if not await app[SESSIONS].is_alive(page.session):
            return False
        check = await app[SESSIONS].touch(tenant_id)
        tenant = await app[TENANTS].find(tenant_id, check.tenant_version, is_changing=check.is_changing)
    except (RedisError, Problem):
        return False
    return tenant.allows(ip_address(page.caller.ip))
