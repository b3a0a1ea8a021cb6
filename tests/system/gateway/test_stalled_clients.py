"""Slow callers do not delay others."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from common.http.connection_limits import LimitedConnection
from tests.support.servers.certificates import make_certificate
from tests.support.system.publishing import add_package, package_id, publish, version_of
from tests.support.system.raw_http import shrink_send_buffer
from tests.support.system.services import Api
from tests.support.system.stub_service import serve_handler

SOON = 20  # seconds, for deadlines that tests shorten
STALLED = "127.0.0.2"  # the address of the stalled connections; all other requests come from 127.0.0.1
MANY = 140  # more than a gateway's connections to one service


@asynccontextmanager
async def stalled(api: Api, request: bytes) -> AsyncIterator[None]:
    """Many connections from one address that sent these bytes and then stall."""
    address = urlsplit(api.base_url)
    opened = [
        await asyncio.open_connection(address.hostname, address.port, limit=1024, local_addr=(STALLED, 0))
        for _ in range(MANY)
    ]
    try:
        for _, writer in opened:
            writer.write(request)
            await writer.drain()
        yield
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def test_endless_forms_do_not_block_a_service(tenant: Api) -> None:
    path = f"/{tenant.tenant_id}/login"
    begun = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nu".encode()
    async with stalled(tenant, begun):
        assert (await tenant.call("GET", "get_users")).status == 200


async def test_slow_downloads_do_not_block_the_upload_service(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    published = await publish(tenant, name, content=os.urandom(8 << 20))
    url = urlsplit((await version_of(tenant, published))["INSTALLER_URL"])
    async with stalled(tenant, f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode()):
        state = await tenant.call("GET", "upload_package_version", headers={"X-File-ID": "unknown"})
        assert state.status == 404
        async with tenant.session.head(url.geturl()) as answer:
            assert answer.status == 200


async def test_a_too_slow_body_is_rejected(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.bodies.TIMEOUT", 0.1)

    async def body() -> AsyncIterator[bytes]:
        yield b"username=admin"
        await asyncio.Event().wait()

    answer = await tenant.call("POST", "login", data=body())
    assert (answer.status, answer.body["detail"]) == (400, "The body came too slowly.")


async def check_served(api: Api, path: str = "test") -> None:
    """Check that a normal request is answered at once."""
    async with asyncio.timeout(SOON):
        assert (await api.call("GET", path)).status == 200


async def send_bytewise(api: Api, start: bytes, rest: bytes) -> bytes:
    """Send endless single bytes on a connection. Returns the answer."""
    address = urlsplit(api.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    got = bytearray()

    async def listen() -> None:
        with suppress(ConnectionError):  # unread bytes turn the close into a reset
            while block := await reader.read(4096):
                got.extend(block)

    writer.write(start)
    listening = asyncio.ensure_future(listen())
    try:
        async with asyncio.timeout(SOON):
            while not listening.done():
                writer.write(rest)
                await asyncio.wait({listening}, timeout=0.02)
        return bytes(got)
    finally:
        listening.cancel()
        writer.close()


# The first bytes of a connection, and the bytes that follow one by one.
ENDLESS_HEADS = (
    (b"", b""),
    (b"", b"G"),
    (b"GET /test HTTP/1.1\r\nHost: x\r\n", b"X: a\r\n"),
    (b"GET /test HTTP/1.1\r\nHost: x\r\nX: ", b"a"),
    (b"", b"\r\n"),
    (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /test HTTP/1.1\r\nHost: x\r\nX: ", b"a"),
)


async def test_connections_with_endless_headers_are_closed(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.connection_limits.HEAD_TIMEOUT", 3.0)
    slow = [asyncio.ensure_future(send_bytewise(tenant, *head)) for head in ENDLESS_HEADS for _ in range(8)]
    await check_served(tenant)
    answers = [answer.count(b"HTTP/1.1") for answer in await asyncio.gather(*slow)]
    # Only the complete request before the endless one was answered.
    assert answers == [0] * 40 + [1] * 8


async def test_an_idle_connection_may_outlast_the_header_timeout(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    address = urlsplit(tenant.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for _ in range(2):
            writer.write(b"HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
            with monkeypatch.context() as patched:
                patched.setattr("common.http.connection_limits.HEAD_TIMEOUT", 0.01)
                await asyncio.sleep(0.1)
    finally:
        writer.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_an_unread_response_is_aborted(tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 0.2)
    given_up = asyncio.Event()
    certificate = make_certificate(tmp_path, "127.0.0.1")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(64 << 10))
        finally:
            given_up.set()

    async with serve_handler(endless, server if tls else None) as address:
        url = urlsplit(address)
        trust = ssl.create_default_context(cafile=certificate) if tls else None
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024, ssl=trust)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(SOON):
            await given_up.wait()
        writer.transport.abort()


async def test_a_short_unread_response_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 0.2)
    given_up, lose = asyncio.Event(), LimitedConnection.connection_lost

    def losing(connection: LimitedConnection, exc: BaseException | None) -> None:
        lose(connection, exc)
        given_up.set()

    monkeypatch.setattr(LimitedConnection, "connection_lost", losing)

    async def short(request: web.Request) -> web.Response:
        shrink_send_buffer(request)
        return web.Response(body=bytes(60 << 10))

    async with serve_handler(short) as address:
        url = urlsplit(address)
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            caller.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(caller, (url.hostname, url.port))
            await loop.sock_sendall(caller, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(SOON):
                await given_up.wait()
