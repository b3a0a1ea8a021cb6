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
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Way = Callable[[Handler], AbstractAsyncContextManager[str]]


@pytest.fixture(autouse=True)
def short_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers stop without waiting for endless requests."""
    monkeypatch.setattr("common.http.server.SHUTDOWN_TIMEOUT", 0.5)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("installers") / "installer"
    path.write_bytes(os.urandom(SIZE))
    return path


@asynccontextmanager
async def through_the_gateway(handler: Handler) -> AsyncIterator[str]:
    """The address of a gateway that forwards all answers of a service."""

    async def forward(request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        async with session.get(service) as response:
            return await relay(request, response)

    async with serve_handler(handler) as service, ClientSession() as session, serve_handler(forward) as address:
        yield address


def sending(file: Path, ended: asyncio.Event | None = None) -> Handler:
    """A handler that serves a download as upload_service does."""

    async def send(request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        try:
            with file.open("rb") as content:
                opened = OpenFile(UPLOAD, 0, SIZE, content)
                return await send_installer(request, opened, ByteRange(0, SIZE, whole=True), "setup.exe")
        finally:
            if ended:
                ended.set()

    return send


both_ways = pytest.mark.parametrize("way", [serve_handler, through_the_gateway])


@both_ways
async def test_a_connection_delivers_several_large_responses(way: Way, file: Path) -> None:
    async with way(sending(file)) as address, asyncio.timeout(SOON):
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await read_one_answer(reader)).endswith(b"\r\n\r\n" + file.read_bytes())
        writer.close()


@pytest.mark.parametrize("reads_all", [True, False])
async def test_only_a_download_that_was_sent_whole_is_reported(file: Path, reads_all: bool) -> None:
    ended, reports = asyncio.Event(), list[str]()

    async def send(request: web.Request) -> web.StreamResponse:
        shrink_send_buffer(request)
        try:
            with file.open("rb") as content:
                opened, part = OpenFile(UPLOAD, 0, SIZE, content), ByteRange(0, SIZE, whole=True)
                return await send_installer(request, opened, part, "setup.exe", lambda: reports.append("sent"))
        finally:
            ended.set()

    async with serve_handler(send) as address, asyncio.timeout(SOON):
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read(-1 if reads_all else 100)
        writer.close()
        await ended.wait()
    assert reports == (["sent"] if reads_all else [])


@both_ways
async def test_a_client_that_does_not_read_is_disconnected(
    way: Way, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 0.2)
    ended = asyncio.Event()
    async with way(sending(file, ended)) as address:
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(SOON):
            await ended.wait()
            with suppress(ConnectionResetError):
                while await reader.read(1 << 16):
                    pass
        writer.close()


@pytest.mark.full  # tests/system/gateway/test_stalled_clients.py has a sample.
@both_ways
async def test_a_slow_reader_gets_a_whole_large_response(way: Way, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.connection_limits.READ_TIMEOUT", 3)
    monkeypatch.setattr("common.http.connection_limits.READ_PROGRESS", 1)
    async with way(sending(file)) as address, asyncio.timeout(SOON):
        assert (await read_slowly(address, pause=0.06)).endswith(file.read_bytes())


@both_ways
async def test_an_interrupted_response_does_not_look_complete(way: Way, file: Path, tmp_path: Path) -> None:
    shorter = tmp_path / "shorter"
    shorter.write_bytes(file.read_bytes()[: SPLICE_THRESHOLD * 2])
    async with way(sending(shorter)) as address, asyncio.timeout(SOON):
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_one_answer(reader)
        writer.close()


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


@dataclass
class ReceivedBody:
    """The request body that a service received through a gateway."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def taking(handler: Handler | None = None) -> AsyncIterator[ReceivedBody]:
    """Run a service behind a gateway that reads bodies, or uses `handler`."""
    taken = ReceivedBody()

    async def take(request: web.Request) -> web.StreamResponse:
        taken.bodies.append(await request.read())
        return web.Response(text="taken")

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("Content-Length",) if name in request.headers}
        try:
            async with service.open(
                make_caller(), "POST", ["take"], headers=headers, data=CallerBody(request), streamed=True
            ) as response:
                return await relay(request, response)
        except Problem as problem:
            return problem_response(problem)

    async with (
        serve_handler(handler or take) as address,
        open_service(address, service="upload_service", keys=KEYS) as service,
        serve_handler(forward) as taken.address,
    ):
        yield taken


def head_of(body: bytes) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()


async def test_a_connection_sends_several_large_bodies(file: Path) -> None:
    body = file.read_bytes()
    async with taking() as taken, asyncio.timeout(SOON):
        url = urlsplit(taken.address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        for _ in range(2):
            writer.write(head_of(body))
            for start in range(0, len(body), PIECE):
                writer.write(body[start : start + PIECE])
                await asyncio.sleep(0)
            writer.write(head_of(b"next") + b"next")
            assert [(await read_one_answer(reader)).partition(b"\r\n\r\n")[2] for _ in range(2)] == [b"taken"] * 2
        writer.close()
    assert taken.bodies == [body, b"next"] * 2


@pytest.mark.parametrize("ends", [True, False])
async def test_an_interrupted_large_body_is_rejected(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr("common.http.bodies.TIMEOUT", 0.2)
    body = file.read_bytes()
    async with taking() as taken, asyncio.timeout(SOON):
        url = urlsplit(taken.address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head_of(body) + body[:-1])
        if ends:
            writer.write_eof()
        # After its end, a connection may be closed before the answer.
        assert (await reader.readline()).partition(b" 400")[0] in ((b"", b"HTTP/1.1") if ends else (b"HTTP/1.1",))
        writer.close()
    assert taken.bodies == []


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ETIMEDOUT])
async def test_a_body_whose_network_fails_is_rejected(file: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, "a fault of a test")

    monkeypatch.setattr("common.http.zero_copy.sources.splice_nonblocking", fail)
    body = file.read_bytes()
    async with taking() as taken, asyncio.timeout(SOON):
        url = urlsplit(taken.address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head_of(body) + body[:PIECE])
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_a_large_body_rejected_before_its_end_is_answered(file: Path) -> None:
    body = file.read_bytes() * 4

    async def refuse(request: web.Request) -> web.Response:
        await request.content.readany()
        return web.Response(status=507, headers={"Connection": "close"})

    async with taking(refuse) as taken, asyncio.timeout(SOON):
        url = urlsplit(taken.address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head_of(body) + body[: len(body) // 2])
        assert (await reader.readline()).startswith(b"HTTP/1.1 500")
        writer.close()


async def test_a_connection_continues_after_an_early_answer(file: Path) -> None:
    body = file.read_bytes()

    async def answer_early(request: web.Request) -> web.Response:
        first = await request.content.readany()
        return web.Response(text="taken" if first == b"next" else "early")

    async with taking(answer_early) as taken, asyncio.timeout(SOON):
        url = urlsplit(taken.address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        for _ in range(2):
            writer.write(head_of(body) + body[:SPLICE_THRESHOLD])
            assert (await read_one_answer(reader)).endswith(b"early")
            writer.write(body[SPLICE_THRESHOLD:] + head_of(b"next") + b"next")
            assert (await read_one_answer(reader)).endswith(b"taken")
        writer.close()


async def test_a_long_body_that_follows_its_head_later_is_read(file: Path) -> None:
    body, bodies = file.read_bytes(), list[bytes]()
    begun = asyncio.Event()

    async def read(request: web.Request) -> web.Response:
        begun.set()
        bodies.append(await request.read())
        return web.Response(text="taken")

    async with serve_handler(read) as address, asyncio.timeout(SOON):
        url = urlsplit(address)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head_of(body))
        await begun.wait()
        writer.write(body)
        assert (await read_one_answer(reader)).endswith(b"taken")
        writer.close()
    assert bodies == [body]


async def test_a_chunked_body_is_forwarded(file: Path) -> None:
    body = file.read_bytes()

    async def blocks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), PIECE):
            yield body[start : start + PIECE]

    async with (
        taking() as taken,
        asyncio.timeout(SOON),
        ClientSession() as session,
        session.post(taken.address, data=blocks()) as answer,
    ):
        assert await answer.text() == "taken"
    assert taken.bodies == [body]


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_service_that_takes_nothing_of_a_body_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_length: bool
) -> None:
    monkeypatch.setattr("common.service_client.client.BLOCK_TIMEOUT", 0.2)
    monkeypatch.setattr("common.http.bodies.TIMEOUT", SOON * 2)  # The service's limit counts, not the caller's.
    body, ended = bytes(8 * SIZE), asyncio.Event()

    async def take_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.transport.abort()

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("Content-Length",) if name in request.headers}
        with pytest.raises(Unavailable):
            async with client.open(
                make_caller(), "POST", ["take"], headers=headers, data=CallerBody(request), timeout=0.2
            ):
                pass
        return web.Response(text="unavailable")

    async def blocks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), PIECE):
            yield body[start : start + PIECE]

    path = tmp_path / "service"
    async with (
        asyncio.timeout(SOON),
        await asyncio.start_unix_server(take_nothing, path),
        open_service(f"unix:{path}", service="upload_service", keys=KEYS) as client,
        serve_handler(forward) as gateway,
        ClientSession() as session,
        session.post(gateway, data=BytesIO(body) if has_length else blocks()) as answer,
    ):
        assert await answer.text() == "unavailable"
        ended.set()


async def _answer_of_aborting_service() -> bytes:
    """The answer to a caller that sends a large body although the service has disconnected."""
    closed = asyncio.Event()

    async def service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(SIZE // 2)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        closed.set()

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Length": request.headers["Content-Length"]}
        with suppress(Unavailable):
            async with client.open(make_caller(), "POST", ["take"], headers=headers, data=CallerBody(request)):
                pass
        return web.Response(status=500)

    async with await asyncio.start_server(service, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            open_service(address, service="upload_service", keys=KEYS) as client,
            serve_handler(forward) as gateway,
            asyncio.timeout(SOON),
        ):
            url = urlsplit(gateway)
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            writer.write(head_of(bytes(8 * SIZE)) + bytes(SIZE // 2 + PIECE))
            await closed.wait()
            await asyncio.sleep(0.1)
            writer.write(bytes(8 * SIZE - SIZE // 2 - PIECE))
            await writer.drain()
            line = await reader.readline()
            writer.close()
            return line


def test_a_body_is_read_to_its_end_after_the_service_fails() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # like the gateway
        assert runner.run(_answer_of_aborting_service()).startswith(b"HTTP/1.1 500")
