"""What happens while a page is open reaches it: by a stream of events that ends with its session, or the server."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import orjson
import pytest
from aiohttp import ClientResponse, ClientTimeout

from tests.system.services import Api, Services
from tests.system.test_documentation import sign_in
from tests.system.test_problems import gateway
from tests.waiting import until

PATIENCE = 20  # seconds after which a test has failed


@asynccontextmanager
async def watching(api: Api, base_url: str = "") -> AsyncIterator[ClientResponse]:
    """A page's stream, from the moment on at which it is told."""
    cookie = await sign_in(api)
    address = f"{base_url or api.base_url}/dashboard/live"
    async with api.session.get(address, headers=cookie, timeout=ClientTimeout(PATIENCE)) as stream:
        assert (stream.status, stream.content_type) == (200, "text/event-stream")
        assert await stream.content.readuntil(b"\n\n") == b"retry: 3000\n\n"
        yield stream


async def told(stream: ClientResponse) -> dict[str, Any]:
    """What the next event says."""
    head, data, end, _ = (await stream.content.readuntil(b"\n\n")).split(b"\n")
    assert (head, end) == (b"event: upload.finished", b"")
    found: dict[str, Any] = orjson.loads(data.removeprefix(b"data: "))
    return found


@pytest.fixture(scope="module")
async def hearing(services: Services) -> None:
    """The gateway hears of uploads: it begins once the broker lets it, and of those before nobody is told."""
    api = await services.tenant()
    async with watching(api) as stream:
        telling = asyncio.ensure_future(told(stream))

        async def heard() -> bool:
            await upload(api, uuid4().hex)
            return telling.done()

        await until(heard)
        await telling


@pytest.mark.attack("S20")
async def test_without_a_session_nobody_is_told(either: Api) -> None:
    for headers in ({}, {"Cookie": f"session-{either.tenant_id}=forged"}, either.headers):
        answer = await either.anonymous().call("GET", "dashboard", "live", headers=headers)
        assert (answer.status, answer.body["code"]) == (401, "not_authenticated")


@pytest.mark.usefixtures("hearing")
async def test_a_finished_upload_is_told_to_its_own_tenant_alone(tenant: Api, other_tenant: Api) -> None:
    async with watching(tenant) as ours, watching(other_tenant) as theirs:
        names = [await upload(api, name) for api, name in ((tenant, "ours"), (other_tenant, "theirs"))]
        heard = [await told(stream) for stream in (ours, theirs)]
    assert [event["server_filename"] for event in heard] == names
    assert [event["file_id"] for event in heard] == ["ours", "theirs"]


async def upload(api: Api, name: str) -> str:
    """A small file; the name that it got."""
    headers = {"X-File-ID": name, "Content-Range": f"bytes 0-{len(name) - 1}/{len(name)}"}
    answer = await api.call(
        "POST", "upload_package_version", headers=headers, data={"chunk": io.BytesIO(name.encode())}
    )
    return str(answer.body["server_filename"])


async def test_a_stream_on_which_nothing_comes_is_kept_alive_until_its_session_ends(
    tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dashboard.live.HEARTBEAT", 0.01)
    async with watching(tenant) as stream:
        assert await stream.content.readuntil(b"\n\n") == b":\n\n"
        token = stream.request_info.headers["Cookie"].partition("=")[2]
        assert (await tenant.call("POST", "logout", data={"token": token})).status == 200
        assert set((await stream.content.read()).split(b"\n\n")) <= {b":", b""}


async def test_a_gateway_that_stops_ends_its_streams(services: Services, tenant: Api, redis_url: str) -> None:
    async with AsyncExitStack() as open_still, AsyncExitStack() as stopping:
        address = await stopping.enter_async_context(gateway(services, redis_url))
        stream = await open_still.enter_async_context(watching(tenant, f"{address}/{tenant.tenant_id}"))
        await stopping.aclose()
        assert await stream.content.read() == b""


async def test_without_a_broker_that_answers_all_else_goes_on(services: Services, tenant: Api, redis_url: str) -> None:
    nobody = "amqp://guest:guest@127.0.0.1:1/"
    async with (
        gateway(services, redis_url, rabbitmq_url=nobody) as address,
        watching(tenant, f"{address}/{tenant.tenant_id}"),
        tenant.session.get(f"{address}/readyz") as ready,
    ):
        assert ready.status == 200
