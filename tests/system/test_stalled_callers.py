"""Callers who take their time keep nobody else waiting."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests.system.services import Api
from tests.system.stories import add_package, package_id, publish, version_of

MANY = 140  # more than the connections that a gateway keeps for questions to one service


@asynccontextmanager
async def stalled(api: Api, request: bytes) -> AsyncIterator[None]:
    """Many connections that sent this much and then neither write nor read."""
    address = urlsplit(api.base_url)
    opened = [await asyncio.open_connection(address.hostname, address.port, limit=1024) for _ in range(MANY)]
    try:
        for _, writer in opened:
            writer.write(request)
            await writer.drain()
        yield
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def test_forms_that_never_end_do_not_keep_others_from_a_service(tenant: Api) -> None:
    path = f"/{tenant.tenant_id}/login"
    begun = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nu".encode()
    async with stalled(tenant, begun):
        assert (await tenant.call("GET", "get_users")).status == 200


async def test_slow_downloads_do_not_keep_others_from_the_upload_service(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    published = await publish(tenant, name, content=os.urandom(8 << 20))
    url = urlsplit((await version_of(tenant, published))["INSTALLER_URL"])
    async with stalled(tenant, f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode()):
        state = await tenant.call("GET", "upload_package_version", headers={"X-File-ID": "unknown"})
        assert state.status == 404
        async with tenant.session.head(url.geturl()) as answer:
            assert answer.status == 200


async def test_a_body_that_comes_too_slowly_is_refused(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.bodies.PATIENCE", 0.1)

    async def body() -> AsyncIterator[bytes]:
        yield b"username=admin"
        await asyncio.Event().wait()

    answer = await tenant.call("POST", "login", data=body())
    assert (answer.status, answer.body["detail"]) == (400, "The body came too slowly.")
