"""An open page has a stream of events. It ends with the session or the server."""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
import pytest
from aiohttp import ClientResponse, ClientTimeout, web

from common.auth.sessions import Session, SessionCheck, Sessions
from common.events import Event
from common.http.server import serving
from common.redis import open_redis
from gateway.auth.authenticator import SESSIONS
from gateway.auth.directories import TENANTS, TenantDirectory
from gateway.dashboard.page_request import UNATTENDED, PageRequest
from gateway.dashboard.pages.live_events import EVENT_HUB, EventHub, stream_events
from tests.support.factories import make_caller
from tests.support.system.gateways import run_gateway
from tests.support.system.pages import sign_in
from tests.support.system.raw_http import shrink_send_buffer
from tests.support.system.services import Api, Services
from tests.support.wait import TIMEOUT, until


@asynccontextmanager
async def watching(api: Api, base_url: str = "") -> AsyncIterator[ClientResponse]:
    """The stream of a page, ready for events."""
    cookie = await sign_in(api)
    address = f"{base_url or api.base_url}/dashboard/live"
    async with api.session.get(address, headers=cookie, timeout=ClientTimeout(TIMEOUT)) as stream:
        assert (stream.status, stream.content_type) == (200, "text/event-stream")
        assert await stream.content.readuntil(b"\n\n") == b"retry: 3000\n\n"
        yield stream


async def next_event(stream: ClientResponse) -> dict[str, Any]:
    """The data of the next event."""
    head, data, end, _ = (await stream.content.readuntil(b"\n\n")).split(b"\n")
    assert (head, end) == (b"event: upload.finished", b"")
    event: dict[str, Any] = orjson.loads(data.removeprefix(b"data: "))
    return event


@pytest.fixture(scope="module")
async def listening(services: Services) -> None:
    """A gateway that receives upload events, after its connection to the broker."""
    api = await services.tenant()
    async with watching(api) as stream:
        waiting = asyncio.ensure_future(next_event(stream))

        async def received() -> bool:
            await upload(api, uuid4().hex)
            return waiting.done()

        await until(received)
        await waiting


async def test_a_stream_requires_a_session(either: Api) -> None:
    for headers in ({}, {"Cookie": f"session-{either.tenant_id}=forged"}, either.headers):
        answer = await either.anonymous().call("GET", "dashboard", "live", headers=headers)
        assert (answer.status, answer.body["code"]) == (401, "not_authenticated")


@pytest.mark.usefixtures("listening")
async def test_events_reach_only_their_own_tenant(tenant: Api, other_tenant: Api) -> None:
    async with watching(tenant) as ours, watching(other_tenant) as theirs:
        names = [await upload(api, name) for api, name in ((tenant, "ours"), (other_tenant, "theirs"))]
        events = [await next_event(stream) for stream in (ours, theirs)]
    assert [event["server_filename"] for event in events] == names
    assert [event["file_id"] for event in events] == ["ours", "theirs"]


async def upload(api: Api, name: str) -> str:
    """Upload a small file. Returns its server filename."""
    headers = {"X-File-ID": name, "Content-Range": f"bytes 0-{len(name) - 1}/{len(name)}"}
    answer = await api.call(
        "POST", "upload_package_version", headers=headers, data={"chunk": io.BytesIO(name.encode())}
    )
    return str(answer.body["server_filename"])


async def test_a_silent_stream_is_kept_alive_until_its_session_ends(
    tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dashboard.pages.live_events.HEARTBEAT", 0.01)
    async with watching(tenant) as stream:
        assert await stream.content.readuntil(b"\n\n") == b":\n\n"
        token = stream.request_info.headers["Cookie"].partition("=")[2]
        assert (await tenant.call("POST", "logout", data={"token": token})).status == 200
        assert set((await stream.content.read()).split(b"\n\n")) <= {b":", b""}


async def test_a_forbidden_address_ends_a_stream(
    services: Services, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dashboard.pages.live_events.HEARTBEAT", 0.01)
    async with watching(tenant) as stream:
        await services.operator.tenants.edit(tenant.tenant_id, {"allowed_networks": ["192.0.2.1"]})
        assert set((await stream.content.read()).split(b"\n\n")) <= {b":", b""}


async def test_a_stopping_gateway_ends_its_streams(services: Services, tenant: Api, redis_url: str) -> None:
    async with AsyncExitStack() as open_still, AsyncExitStack() as stopping:
        address = await stopping.enter_async_context(run_gateway(services, redis_url))
        stream = await open_still.enter_async_context(watching(tenant, f"{address}/{tenant.tenant_id}"))
        await stopping.aclose()
        assert await stream.content.read() == b"retry: 3000\n\n"


async def test_a_gateway_works_without_its_broker(services: Services, tenant: Api, redis_url: str) -> None:
    nobody = "amqp://guest:guest@127.0.0.1:1/"
    async with (
        run_gateway(services, redis_url, rabbitmq_url=nobody) as address,
        watching(tenant, f"{address}/{tenant.tenant_id}"),
        tenant.session.get(f"{address}/readyz") as ready,
    ):
        assert ready.status == 200


async def test_a_browser_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.dashboard.pages.live_events.READ_TIMEOUT", 0.2)
    caller, disconnected = make_caller(ip="127.0.0.1"), asyncio.Event()
    session = Session(caller.tenant_id, caller.username, "a-session", int(time.time()) + 3600)

    async def watched(request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        transport = request.transport
        try:
            return await stream_events(PageRequest(request, caller, session, "", "en"))
        finally:
            assert transport is not None
            if transport.is_closing():
                disconnected.set()

    app, live = web.Application(), EventHub()
    sessions: Sessions = Mock(
        Sessions, is_alive=AsyncMock(return_value=True), touch=AsyncMock(return_value=SessionCheck("1"))
    )
    tenants: TenantDirectory = Mock(TenantDirectory, find=AsyncMock(return_value=caller.tenant))
    app[EVENT_HUB], app[SESSIONS], app[TENANTS] = live, sessions, tenants
    app.router.add_get("/", watched)
    async with serving(app, "127.0.0.1:0") as address:
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"retry: 3000\n\n")
        long = {"server_filename": "a" * (16 << 20)}
        live.publish(Event("1", "upload.finished", "tests", caller.tenant_id, datetime.now(UTC), long))
        async with asyncio.timeout(TIMEOUT):
            await disconnected.wait()
        writer.close()


async def test_automatic_requests_do_not_extend_the_session(tenant: Api, redis_url: str) -> None:
    cookie = await sign_in(tenant)
    publish = ("GET", "dashboard", "publish")
    async with open_redis(redis_url) as redis:
        sessions = [key async for key in redis.scan_iter(match=f"session:{{{tenant.tenant_id}:*")]
        for key in sessions:
            await redis.expire(key, 60)
        async with tenant.session.get(f"{tenant.base_url}/dashboard/live", headers=cookie) as stream:
            assert stream.status == 200
        unattended = {**cookie, UNATTENDED: "true"}
        assert (await tenant.anonymous().call(*publish, headers=unattended)).status == 200
        assert max([await redis.ttl(key) for key in sessions]) <= 60
        assert (await tenant.anonymous().call(*publish, headers=cookie)).status == 200
        assert max([await redis.ttl(key) for key in sessions]) > 60
    await tenant.call("POST", "logout", data={"token": cookie["Cookie"].partition("=")[2]})
    assert (await tenant.anonymous().call(*publish, headers=unattended)).status == 307
