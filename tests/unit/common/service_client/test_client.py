"""Calls between services: each request is sent once, on its own connection, and with a timeout."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http import StreamWriter

from common.errors import Overloaded, Unavailable
from common.http.aiohttp_private import ConnectTimeoutMixin
from common.service_client.client import SMALL, STREAMS_OF_NETWORK, ServiceClient, open_service
from tests.support.factories import KEYS, make_caller
from tests.support.system.stub_service import serve_handler
from tests.support.tables import each

SOON = 60  # seconds: less than every other timeout in these tests


@pytest.fixture
def silent_address() -> Iterator[str]:
    """The address of a server that accepts no more connections."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pause within a response end a request before `SOON`."""
    monkeypatch.setattr("common.service_client.client.BLOCK_TIMEOUT", 1000.0)


class UnsentBody:
    """A body that is lost if it is sent."""

    async def send(self, writer: StreamWriter, *, stall_timeout: float) -> None:
        raise AssertionError


async def test_every_request_to_an_unreachable_service_times_out_soon(
    silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectTimeoutMixin, "connect_timeout", 0.2)
    kinds: list[dict[str, Any]] = [
        {"timeout": 90.0},
        {"timeout": 120.0},
        {"timeout": 120.0, "streamed": True},
        {"timeout": 120.0, "streamed": True, "data": UnsentBody()},
    ]

    async with open_service(silent_address, service="upload_service", keys=KEYS) as service:

        async def ask(kind: dict[str, Any]) -> None:
            async with service.open(make_caller(), "POST", ["x"], **kind):
                pass

        async with asyncio.timeout(SOON):
            answers = await asyncio.gather(*map(ask, kinds), service.readiness(timeout=0.2), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * (len(kinds) + 1)


async def test_a_short_response_arrives_completely_within_its_timeout() -> None:
    release = asyncio.Event()

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 10
        await response.prepare(request)
        await response.write(b"[")
        await release.wait()
        return response

    async with serve_handler(stall) as address, open_service(address, service="auth_service", keys=KEYS) as service:
        async with asyncio.timeout(SOON):
            with pytest.raises(Unavailable):
                await service.json(make_caller(), "find_tenant", timeout=0.3)
        release.set()


@each(
    ("body", "expected"),
    [
        ('{"status": "not ready", "missing": {}}', {"status": "not ready", "missing": {}}),
        ("", None),
        ("[]x", None),
        ("[1]", None),
    ],
)
async def test_readiness_is_a_valid_response_of_any_status(body: str, expected: object) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/readyz"
        return web.Response(text=body, status=503)

    async with serve_handler(answer) as address, open_service(address, service="auth_service", keys=KEYS) as service:
        with nullcontext() if expected else pytest.raises(Unavailable):
            assert await service.readiness(timeout=SOON) == expected


@dataclass
class RawServer:
    """A raw server: the requests by connection, and a response to each."""

    answer: Callable[[asyncio.StreamWriter], Awaitable[None]]
    sent: list[list[bytes]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests: list[bytes] = []
        self.sent.append(requests)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
                requests.append(head + await reader.readexactly(length))
                await self.answer(writer)
        self.ended.set()
        writer.close()


@asynccontextmanager
async def serving_raw(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[ServiceClient, RawServer]]:
    wire = RawServer(answer)
    async with await asyncio.start_server(wire.serve, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_service(address, service="auth_service", keys=KEYS) as service:
            yield service, wire


def responding_with(*answers: bytes, close: bool = False) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Responds with these bytes in order, repeating the last; None closes the connection."""
    remaining = list(answers)

    async def answer(writer: asyncio.StreamWriter) -> None:
        response = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        writer.write(response)
        if close or not response:
            writer.close()

    return answer


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def read(service: ServiceClient, method: str = "GET", **kind: Any) -> bytes:
    async with service.open(make_caller(), method, ["x"], **kind) as response:
        return await response.read()


async def test_sequential_requests_share_one_connection() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    long = b"x" * (SMALL + 1)
    async with serving_raw(responding_with(whole(b"1"), early + whole(b"2"), whole(long), whole(b"4"))) as (
        service,
        wire,
    ):
        responses = [
            await read(service),
            await read(service, "POST", data=b"a body"),
            await read(service),
            await read(service),
        ]
    assert responses == [b"1", b"2", long, b"4"]
    assert [len(requests) for requests in wire.sent] == [4]


async def test_a_response_to_head_has_a_length_and_no_body() -> None:
    head = whole(b"", "200 OK").replace(b"Length: 0", b"Length: 7")
    async with serving_raw(responding_with(head)) as (service, wire):
        for _ in range(2):
            async with service.open(make_caller(), "HEAD", ["x"]) as response:
                assert (response.content_length, await response.read()) == (7, b"")
    assert [len(requests) for requests in wire.sent] == [2]


async def test_concurrent_requests_use_separate_connections() -> None:
    both = asyncio.Barrier(2)

    async def answer(writer: asyncio.StreamWriter) -> None:
        await both.wait()
        writer.write(whole(b"1"))

    async with asyncio.timeout(SOON), serving_raw(answer) as (service, wire):
        assert list(await asyncio.gather(read(service), read(service))) == [b"1", b"1"]
    assert [len(requests) for requests in wire.sent] == [1, 1]


async def test_a_read_is_retried_once_if_the_connection_ends_without_a_response() -> None:
    async with serving_raw(responding_with(whole(b"1"), b"", whole(b"2"), b"")) as (service, wire):
        assert [await read(service), await read(service)] == [b"1", b"2"]
        with pytest.raises(Unavailable):
            await read(service)
    assert [len(requests) for requests in wire.sent] == [2, 2, 1]


@each("method", ["POST", "PATCH", "DELETE"])
async def test_a_write_is_never_retried(method: str) -> None:
    async with serving_raw(responding_with(whole(b"1"), b"")) as (service, wire):
        assert await read(service) == b"1"
        with pytest.raises(Unavailable):
            await read(service, method, data=b"a body")
    assert [len(requests) for requests in wire.sent] == [2]


@each("begun", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"no HTTP\r\n\r\n"])
async def test_an_invalid_or_incomplete_response_is_not_retried(begun: bytes) -> None:
    async with serving_raw(responding_with(begun, close=True)) as (service, wire):
        with pytest.raises(Unavailable):
            await read(service)
    assert [len(requests) for requests in wire.sent] == [1]


async def test_a_cancelled_request_closes_its_connection() -> None:
    requested = asyncio.Event()

    async def stall(_: asyncio.StreamWriter) -> None:
        requested.set()

    async with asyncio.timeout(SOON), serving_raw(stall) as (service, wire):
        asking = asyncio.create_task(read(service))
        await requested.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await wire.ended.wait()


async def test_a_partly_read_stream_closes_its_connection() -> None:
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
    async with asyncio.timeout(SOON), serving_raw(responding_with(begun)) as (service, wire):
        async with service.open(make_caller(), "GET", ["x"]) as response:
            assert await anext(response.content.iter_any()) == b"half"
        await wire.ended.wait()


async def test_an_early_response_closes_its_connection() -> None:
    heads: list[list[bytes]] = []

    async def respond_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        heads.append(mine)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            mine.append((await reader.readuntil(b"\r\n\r\n"))[:4])
            writer.write(whole(b"1"))
            await release.wait()
        writer.close()

    release = asyncio.Event()
    async with asyncio.timeout(SOON), await asyncio.start_server(respond_early, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_service(address, service="auth_service", keys=KEYS) as service:
            assert await read(service, "POST", data=b"x" * (16 << 20)) == b"1"
            assert await read(service) == b"1"
            release.set()
    assert heads == [[b"POST"], [b"GET "]]


async def test_a_request_has_one_content_length_which_is_correct() -> None:
    async with serving_raw(responding_with(whole(b"1"))) as (service, wire):
        for data in (b"a body", b"", None):
            await read(service, "POST", data=data, headers={"content-length": "99"})
        await read(service)
    lengths = [request.lower().split(b"content-length: ")[1:] for request in wire.sent[0]]
    assert [[length.partition(b"\r")[0] for length in each] for each in lengths] == [[b"6"], [b"0"], [b"0"], []]


@each("broken", ["a\r\nX-Internal-Token: b", "a\nb", "a\rb", "a\0b"])
@each("where", ["value", "name", "query"])
async def test_a_request_part_cannot_contain_a_line_break(where: str, broken: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "value": {"headers": {"User-Agent": broken}},
        "name": {"headers": {broken: "x"}},
        "query": {"query": broken},
    }
    async with serving_raw(responding_with(whole(b"1"))) as (service, wire):
        with pytest.raises(ValueError, match="more than one line"):
            await read(service, **kinds[where])
    assert wire.sent == []


async def test_one_network_holds_only_its_share_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, release = 0, asyncio.Event()

    async def hold(_: web.Request) -> web.Response:
        nonlocal arrived
        arrived += 1
        await release.wait()
        return web.Response()

    async def stream(service: ServiceClient, ip: str) -> None:
        async with service.open(make_caller(ip=ip), "GET", ["x"], streamed=True, timeout=60):
            pass

    def start(service: ServiceClient, count: int, ip: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(stream(service, ip.format(number))) for number in range(count)]

    async def wait_for(count: int) -> None:
        while arrived < count:  # noqa: ASYNC110  the server does not tell who waits
            await asyncio.sleep(0.01)

    async with serve_handler(hold) as address, open_service(address, service="upload_service", keys=KEYS) as service:
        async with asyncio.timeout(60):
            running = start(service, STREAMS_OF_NETWORK, "2001:db8::{:x}")  # Both addresses are in one /64 network.
            await wait_for(STREAMS_OF_NETWORK)
            monkeypatch.setattr("common.service_client.client.STREAM_TIMEOUT", 0.01)
            with pytest.raises(Overloaded):
                await stream(service, "2001:db8::ffff")
            running += start(service, 1, "2001:db8:0:1::1")
            await wait_for(STREAMS_OF_NETWORK + 1)
            release.set()
            await asyncio.gather(*running)
