"""Finished uploads of the tenant as server-sent events, while a page is open. Nothing is stored."""

import asyncio
import time
from asyncio import Queue
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address

import orjson
from aiohttp import web

from common.errors import Overloaded, Problem
from common.events import Event, Events
from common.http.middleware import ROUTE
from common.redis import RedisError
from gateway.auth.authenticator import SESSIONS
from gateway.auth.directories import TENANTS
from gateway.dashboard.page_request import PageRequest

MAX_WATCHERS = 100  # of a tenant in one process
MAX_PER_USER = 16  # of these; the next one replaces the user's oldest
MAX_QUEUED = 32  # events for one watcher; a slower one is disconnected, and loads its page again
SOON, LATER = 3, 30  # seconds until a disconnected page connects again
HEARTBEAT = 20.0  # seconds; a proxy closes an idle connection
READ_TIMEOUT = 8.0  # seconds for a browser to read an event, less than the shutdown gives requests
METRICS_ROUTE = "/{tenant_id}/dashboard/live"  # separate from the pages, because a stream lasts as long as its page
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class StreamEnd:
    """The end of a stream. The page connects again after so many seconds."""

    reconnect_in: int


Watcher = Queue[Event | StreamEnd]


class EventHub:
    """Publishes events to the watchers of their tenant."""

    def __init__(self) -> None:
        self._users: dict[str, dict[Watcher, str]] = {}  # by tenant, the user of each watcher, the oldest first
        self._is_closed = False

    def publish(self, event: Event) -> None:
        for watcher in self._users.get(event.tenant_id, ()):
            if watcher.full():
                _end(watcher, SOON)
            else:
                watcher.put_nowait(event)

    @contextmanager
    def subscribe(self, tenant_id: str, username: str) -> Iterator[Watcher]:
        """Receive a tenant's events within the block. Raises Overloaded if the tenant has too many watchers.

        A user's newest page is always served. Above the user's limit, the oldest page is disconnected, and connects
        again later rather than soon, so that open pages take turns.
        """
        if self._is_closed:
            raise Overloaded
        users = self._users.setdefault(tenant_id, {})
        own = [watcher for watcher, user in users.items() if user == username]
        if len(own) >= MAX_PER_USER:
            del users[own[0]]
            _end(own[0], LATER)
        elif len(users) >= MAX_WATCHERS:
            raise Overloaded
        watcher = Watcher(MAX_QUEUED)
        users[watcher] = username
        try:
            yield watcher
        finally:
            self._remove(tenant_id, watcher)

    def _remove(self, tenant_id: str, watcher: Watcher) -> None:
        users = self._users.get(tenant_id, {})
        users.pop(watcher, None)
        if not users:
            self._users.pop(tenant_id, None)

    def close(self) -> None:
        """Disconnect all watchers, and refuse new ones."""
        self._is_closed = True
        for users in self._users.values():
            for watcher in users:
                _end(watcher, SOON)


def _end(watcher: Watcher, reconnect_in: int) -> None:
    while not watcher.empty():
        watcher.get_nowait()
    watcher.put_nowait(StreamEnd(reconnect_in))


EVENT_HUB = web.AppKey("event_hub", EventHub)
EVENTS: web.AppKey[Events] = web.AppKey("events")


async def stream_events(page: PageRequest) -> web.StreamResponse:
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
        tenant = await app[TENANTS].find(tenant_id, check.access_version, is_changing=check.is_changing)
    except (RedisError, Problem):
        return False
    return tenant.allows(ip_address(page.caller.ip))
