"""Large request bodies and responses through the gateway: complete, at the reader's pace, or aborted."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop
from aiohttp import ClientPayloadError, ClientSession, web

from common.errors import Problem, Unavailable
from common.http.middleware import problem_response
from common.http.zero_copy.request_bodies import CallerBody
from common.service_client.client import open_service
from gateway.forwarding.proxy import SPLICE_THRESHOLD, relay
from tests.support.factories import KEYS, make_caller
from tests.support.system.raw_http import read_one_answer, read_slowly, shrink_send_buffer
from tests.support.system.stub_service import serve_handler
from upload_service.downloads.routes import ByteRange, send_installer
from upload_service.downloads.service import OpenFile
from upload_service.model import Upload

SOON = 60  # seconds; reached only when something hangs
SIZE = SPLICE_THRESHOLD * 4 + 3
PIECE = 100_000  # bytes of a sender's block
UPLOAD = Upload("acme", "f", "u", SIZE, size=SIZE, sha256="0" * 64)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Way = Callable[[Handler], AbstractAsyncContextManager[str]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def short_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers stop without waiting for endless requests."""
    monkeypatch.setattr("common.http.server.SHUTDOWN_TIMEOUT", 0.5)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("installers") / "installer"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(scope="module")
def body(file: Path) -> bytes:
    return file.read_bytes()


@asynccontextmanager
async def connected(address: str, limit: int = 1 << 16) -> AsyncIterator[Connection]:
    """A raw connection, for at most `SOON`."""
    url = urlsplit(address)
    async with asyncio.timeout(SOON):
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=limit)
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def through_the_gateway(handler: Handler) -> AsyncIterator[str]:
    """The address of a gateway that forwards all answers of a service."""

    async def forward(request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        async with session.request(request.method, service) as response:
            return await relay(request, response)

    async with serve_handler(handler) as service, ClientSession() as session, serve_handler(forward) as address:
        yield address


@dataclass
class Sending:
    """Serves a download as upload_service does."""

    file: Path
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reports: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        try:
            with self.file.open("rb") as content:
                opened, part = OpenFile(UPLOAD, 0, SIZE, content), ByteRange(0, SIZE, whole=True)
                return await send_installer(request, opened, part, "setup.exe", lambda: self.reports.append("sent"))
        finally:
            self.ended.set()


both_ways = pytest.mark.parametrize("way", [serve_handler, through_the_gateway])


@both_ways
async def test_a_connection_delivers_several_large_responses(way: Way, file: Path, body: bytes) -> None:
    async with way(Sending(file).answer) as address, connected(address) as (reader, writer):
        writer.write(GET.replace(b"GET", b"HEAD"))
        assert f"content-length: {SIZE}\r\n".encode() in (await reader.readuntil(b"\r\n\r\n")).lower()
        for _ in range(2):
            writer.write(GET)
            assert (await read_one_answer(reader)).endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("reads_all", [True, False])
async def test_only_a_download_that_was_sent_whole_is_reported(file: Path, reads_all: bool) -> None:
    sending = Sending(file)
    async with serve_handler(sending.answer) as address:
        async with connected(address, limit=1024) as (reader, writer):
            writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await reader.read(-1 if reads_all else 100)
        async with asyncio.timeout(SOON):
            await sending.ended.wait()
    assert sending.reports == (["sent"] if reads_all else [])


@both_ways
async def test_a_client_that_does_not_read_is_disconnected(
    way: Way, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 0.2)
    sending = Sending(file)
    async with way(sending.answer) as address, connected(address, limit=1024) as (reader, writer):
        writer.write(GET)
        await sending.ended.wait()
        with suppress(ConnectionResetError):
            while await reader.read(1 << 16):
                pass


@pytest.mark.full  # tests/system/gateway/test_stalled_clients.py has a sample.
@both_ways
async def test_a_slow_reader_gets_a_whole_large_response(
    way: Way, file: Path, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 3)
    monkeypatch.setattr("common.http.connection_limits.READ_PROGRESS", 1)
    async with way(Sending(file).answer) as address, asyncio.timeout(SOON):
        assert (await read_slowly(address, pause=0.06)).endswith(body)


@both_ways
async def test_an_interrupted_response_does_not_look_complete(way: Way, body: bytes, tmp_path: Path) -> None:
    shorter = tmp_path / "shorter"
    shorter.write_bytes(body[: SPLICE_THRESHOLD * 2])
    async with way(Sending(shorter).answer) as address, connected(address) as (reader, writer):
        writer.write(GET)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_one_answer(reader)


async def test_a_response_that_stalls_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.forwarding.proxy.BLOCK_TIMEOUT", 0.2)
    over = asyncio.Event()

    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(SIZE)})
        await response.prepare(request)
        await response.write(bytes(SIZE // 2))
        await over.wait()
        return response

    async with through_the_gateway(half) as address, asyncio.timeout(SOON):
        async with ClientSession() as session, session.get(address) as response:
            with pytest.raises(ClientPayloadError):
                await response.read()
        over.set()


@asynccontextmanager
async def forwarding(service: str, *, streamed: bool = True, timeout: float = SOON) -> AsyncIterator[str]:
    """The address of a gateway that forwards bodies to a service, and answers its problems."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("Content-Length",) if name in request.headers}
        try:
            async with client.open(
                make_caller(),
                "POST",
                ["take"],
                headers=headers,
                data=CallerBody(request),
                streamed=streamed,
                timeout=timeout,
            ) as response:
                return await relay(request, response)
        except Problem as problem:
            return problem_response(problem)

    async with (
        open_service(service, service="upload_service", keys=KEYS) as client,
        serve_handler(forward) as address,
    ):
        yield address


@dataclass
class Service:
    """A service behind a gateway that reads bodies."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(text="taken")


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    taking = Service()
    async with serve_handler(taking.answer) as address, forwarding(address) as taking.address:
        yield taking


def head_of(body: bytes) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def test_a_connection_sends_several_large_bodies(service: Service, body: bytes) -> None:
    async with connected(service.address) as (reader, writer):
        for _ in range(2):
            writer.write(head_of(body))
            async for piece in in_pieces(body):
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write(head_of(b"next") + b"next")
            assert [(await read_one_answer(reader)).partition(b"\r\n\r\n")[2] for _ in range(2)] == [b"taken"] * 2
    assert service.bodies == [body, b"next"] * 2


async def test_a_chunked_body_is_forwarded(service: Service, body: bytes) -> None:
    async with (
        asyncio.timeout(SOON),
        ClientSession() as session,
        session.post(service.address, data=in_pieces(body)) as answer,
    ):
        assert await answer.text() == "taken"
    assert service.bodies == [body]


@pytest.mark.parametrize("ends", [True, False])
async def test_an_interrupted_large_body_is_rejected(
    service: Service, body: bytes, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr("common.http.bodies.TIMEOUT", 0.2)
    async with connected(service.address) as (reader, writer):
        writer.write(head_of(body) + body[:-1])
        if ends:
            writer.write_eof()
        # After its end, a connection may be closed before the answer.
        assert (await reader.readline()).partition(b" 400")[0] in ((b"", b"HTTP/1.1") if ends else (b"HTTP/1.1",))
    assert service.bodies == []


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ETIMEDOUT])
async def test_a_body_whose_network_fails_is_rejected(
    service: Service, body: bytes, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, "a fault of a test")

    monkeypatch.setattr("common.http.zero_copy.sources.splice_nonblocking", fail)
    async with connected(service.address) as (reader, writer):
        writer.write(head_of(body) + body[:PIECE])
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


async def test_a_large_body_rejected_before_its_end_is_answered(body: bytes) -> None:
    async def refuse(request: web.Request) -> web.Response:
        await request.content.readany()
        return web.Response(status=507, headers={"Connection": "close"})

    async with (
        serve_handler(refuse) as refusing,
        forwarding(refusing) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(head_of(body * 4) + body * 2)
        assert (await reader.readline()).startswith(b"HTTP/1.1 500")


async def test_a_connection_continues_after_an_early_answer(body: bytes) -> None:
    async def answer_early(request: web.Request) -> web.Response:
        first = await request.content.readany()
        return web.Response(text="taken" if first == b"next" else "early")

    async with (
        serve_handler(answer_early) as hasty,
        forwarding(hasty) as address,
        connected(address) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(head_of(body) + body[:SPLICE_THRESHOLD])
            assert (await read_one_answer(reader)).endswith(b"early")
            writer.write(body[SPLICE_THRESHOLD:] + head_of(b"next") + b"next")
            assert (await read_one_answer(reader)).endswith(b"taken")


async def test_a_long_body_that_follows_its_head_later_is_read(body: bytes) -> None:
    begun, service = asyncio.Event(), Service()

    async def read(request: web.Request) -> web.Response:
        begun.set()
        return await service.answer(request)

    async with serve_handler(read) as address, connected(address) as (reader, writer):
        writer.write(head_of(body))
        await begun.wait()
        writer.write(body)
        assert (await read_one_answer(reader)).endswith(b"taken")
    assert service.bodies == [body]


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_service_that_takes_nothing_of_a_body_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_length: bool
) -> None:
    monkeypatch.setattr("common.service_client.client.BLOCK_TIMEOUT", 0.2)
    monkeypatch.setattr("common.http.bodies.TIMEOUT", SOON * 2)  # The service's limit counts, not the caller's.
    body, path, ended = bytes(8 * SIZE), tmp_path / "service", asyncio.Event()

    async def take_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.transport.abort()

    async with (
        asyncio.timeout(SOON),
        await asyncio.start_unix_server(take_nothing, path),
        forwarding(f"unix:{path}", streamed=False, timeout=0.2) as gateway,
        ClientSession() as session,
        session.post(gateway, data=BytesIO(body) if has_length else in_pieces(body)) as answer,
    ):
        assert (answer.status, (await answer.json())["code"]) == (500, Unavailable.code)
        ended.set()


async def _answer_of_aborting_service() -> bytes:
    """The answer to a caller that sends a large body although the service has disconnected."""
    closed = asyncio.Event()

    async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(SIZE // 2)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        closed.set()

    async with await asyncio.start_server(abort, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with forwarding(address, streamed=False) as gateway, connected(gateway) as (reader, writer):
            writer.write(head_of(bytes(8 * SIZE)) + bytes(SIZE // 2 + PIECE))
            await closed.wait()
            await asyncio.sleep(0.1)
            writer.write(bytes(8 * SIZE - SIZE // 2 - PIECE))
            await writer.drain()
            return await reader.readline()


def test_a_body_is_read_to_its_end_after_the_service_fails() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # like the gateway
        assert runner.run(_answer_of_aborting_service()).startswith(b"HTTP/1.1 500")
