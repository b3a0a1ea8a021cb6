"""Long catalogs are kept in files: every caller gets all bytes of one version, and the cache counts them."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, TCPConnector, web

from common.auth.internal_tokens import HIDDEN, Caller
from common.auth.roles import ADMINISTRATOR
from common.service_client.client import open_service
from common.tenants import Tenant
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import ClientDirectory
from gateway.caching import catalogs
from gateway.caching.catalogs import CatalogCache
from tests.support.factories import KEYS
from tests.support.servers.certificates import make_certificate
from tests.support.system.raw_http import shrink_send_buffer
from tests.support.system.stub_service import serve_handler

SIZE = 3 << 20  # bytes of a catalog
BUDGET = 8 << 20  # bytes
SOON = 20  # seconds
CALLER = Caller(Tenant("acme")).as_administrator("admin", "s1", ADMINISTRATOR)


@dataclass
class Gateway:
    """A gateway's cache before a catalog_service, whose catalogs have different bytes for each version."""

    version: int = 1
    calls: int = 0
    bodies: int = 0
    forwarded: int = 0
    sized: bool = True
    broken: bool = False
    address: str = ""
    cache: CatalogCache = field(init=False)
    on_sending: Callable[[web.Request], None] = lambda _: None

    def body(self, version: int) -> bytes:
        return b"%08d" % version * (SIZE // 8)

    async def answer_as_service(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        tag, body = f'"{self.version}"', self.body(self.version)
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, HIDDEN: ""})
        self.bodies += 1
        response = web.StreamResponse(headers={"ETag": tag, HIDDEN: "", "Content-Type": "application/json"})
        response.content_length = len(body) if self.sized else None
        await response.prepare(request)
        await response.write(body[: SIZE // 2])
        if self.broken:
            assert request.transport
            request.transport.close()
            return response
        await response.write(body[SIZE // 2 :])
        return response

    async def answer(self, request: web.Request) -> web.StreamResponse:
        request[TENANT_VERSION] = str(self.version)
        self.on_sending(request)
        if catalog := await self.cache.find(request, CALLER):
            return await catalog.send(request)
        self.forwarded += 1
        return web.Response(status=204)

    async def get(self, trust: ssl.SSLContext | None = None) -> bytes:
        """The catalog that a caller gets; nothing if it would be forwarded."""
        connector = TCPConnector(ssl=trust) if trust else None
        async with (
            asyncio.timeout(SOON),
            ClientSession(connector=connector) as session,
            session.post(f"{self.address}/acme/get_packages") as answer,
        ):
            return await answer.read()

    def change(self) -> None:
        self.version += 1


@asynccontextmanager
async def run_gateway(tls: ssl.SSLContext | None = None) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    async with (
        serve_handler(gateway.answer_as_service) as service_address,
        open_service(service_address, service="catalog_service", keys=KEYS) as service,
    ):
        gateway.cache = CatalogCache(service, ClientDirectory(service), budget=BUDGET)
        async with serve_handler(gateway.answer, tls) as gateway.address:
            yield gateway


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with run_gateway() as running:
        yield running


def is_on_disk() -> bool:
    """Whether this process has its files with a catalog's size on disk."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if descriptor.stat().st_size == SIZE:
                names.append(str(descriptor.readlink()))
    assert names
    return all("memfd:" not in name for name in names)


@pytest.mark.parametrize(
    ("name", "value", "on_disk"),
    [("RESERVE", 0, True), ("RESERVE", 1 << 60, False), ("tempfile.tempdir", "/nonexistent", False)],
    ids=["on disk", "too little room", "no temporary folder"],
)
async def test_a_long_catalog_arrives_whole(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, name: str, value: object, on_disk: bool
) -> None:
    monkeypatch.setattr(name if "." in name else f"gateway.caching.catalogs.{name}", value)
    for _ in range(3):
        assert await gateway.get() == gateway.body(1)
    assert gateway.calls == 1
    assert is_on_disk() is on_disk
    assert (gateway.cache.used_bytes, gateway.cache.count) == (SIZE, 1)


async def test_a_long_catalog_arrives_whole_over_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    async with run_gateway(server) as gateway:
        for _ in range(2):
            assert await gateway.get(ssl.create_default_context(cafile=certificate)) == gateway.body(1)


async def test_a_stalled_caller_gets_the_catalog_that_it_asked_for(gateway: Gateway) -> None:
    gateway.on_sending = shrink_send_buffer
    url = urlsplit(gateway.address)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
    connection.connect((url.hostname, url.port))
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
    writer.write(b"POST /acme/get_packages HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(3):
        gateway.change()
        assert await gateway.get() == gateway.body(gateway.version)
        assert gateway.cache.used_bytes == 2 * SIZE  # with the one that is still sent
    async with asyncio.timeout(SOON):
        assert await reader.readexactly(SIZE) == gateway.body(1)
    writer.close()


async def test_a_changed_catalog_is_forwarded_once_then_kept(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "AT_ONCE", SIZE - 1)
    for version in (1, 2):
        gateway.forwarded = gateway.calls = 0
        bodies = await asyncio.gather(*(gateway.get() for _ in range(5)))
        assert sorted(bodies) == [b"", *[gateway.body(version)] * 4]
        assert (gateway.forwarded, await gateway.get()) == (1, gateway.body(version))
        assert gateway.calls == 2
        gateway.change()


async def test_an_unchanged_long_catalog_is_not_received_again(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "AT_ONCE", SIZE - 1)
    monkeypatch.setattr(catalogs, "MAX_AGE", 0.0)
    await gateway.get()
    assert [await gateway.get() for _ in range(3)] == [gateway.body(1)] * 3
    assert (gateway.forwarded, gateway.bodies, gateway.calls) == (1, 2, 4)


async def test_a_catalog_that_ends_early_is_not_kept(gateway: Gateway) -> None:
    gateway.broken = True
    assert await gateway.get() != gateway.body(1)
    assert (gateway.cache.used_bytes, gateway.cache.count, gateway.forwarded) == (0, 0, 0)
    gateway.broken = False
    assert await gateway.get() == gateway.body(1)


async def test_a_catalog_that_cannot_be_stored_is_forwarded(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(catalogs, "open_file", fail)
    assert await gateway.get() == b""
    assert (gateway.forwarded, gateway.cache.used_bytes, gateway.cache.count) == (1, 0, 0)


async def test_a_catalog_without_a_length_is_soon_asked_for_again(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "FORWARD_AGE", 0.0)
    gateway.sized = False
    assert await gateway.get() == b""
    gateway.sized = True
    assert await gateway.get() == gateway.body(1)
