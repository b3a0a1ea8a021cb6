"""One service asking another: each question once, on a connection of its own, and not for ever."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from common.errors import Overloaded, Unavailable
from common.http.aiohttp_private import ConnectTimeoutMixin
from common.service_client.client import SMALL, STREAMS, ServiceClient, open_service
from tests.support.factories import KEYS, make_caller
from tests.support.tables import each
from tests.support.whole.stub_service import serve_handler

SOON = 60  # seconds: less than anything else that ends a request in these tests


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of someone who takes no connection any more."""
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
    """Let no pause within an answer end a request before `SOON`."""
    monkeypatch.setattr("common.service_client.client.BLOCK_TIMEOUT", 1000.0)


async def blocks() -> AsyncIterator[bytes]:
    yield b"a"


async def test_every_request_to_an_unreachable_service_times_out_soon(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectTimeoutMixin, "connect_timeout", 0.2)
    kinds: list[dict[str, Any]] = [
        {"timeout": 90.0},
        {"timeout": 120.0},
        {"timeout": 120.0, "streamed": True},
        {"timeout": 120.0, "streamed": True, "data": blocks()},
    ]

    async with open_service(deaf, service="upload_service", keys=KEYS) as service:

        async def ask(kind: dict[str, Any]) -> None:
            async with service.open(make_caller(), "POST", ["x"], **kind):
                pass

        async with asyncio.timeout(SOON):
            answers = await asyncio.gather(*map(ask, kinds), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * len(kinds)


async def test_a_short_answer_is_there_in_time_as_a_whole() -> None:
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


async def test_a_service_says_what_it_lacks_whatever_the_status_of_that() -> None:
    async def lacking(request: web.Request) -> web.Response:
        assert request.path == "/readyz"
        return web.json_response({"status": "not ready", "missing": {"mongodb": "AutoReconnect"}}, status=503)

    async with serve_handler(lacking) as address, open_service(address, service="auth_service", keys=KEYS) as service:
        told = await service.readiness(timeout=SOON)
    assert told == {"status": "not ready", "missing": {"mongodb": "AutoReconnect"}}


@each("said", ["", "[]x", "[1]"])
async def test_a_service_that_does_not_say_how_it_stands_does_not_answer(said: str) -> None:
    async def babbling(_: web.Request) -> web.Response:
        return web.Response(text=said)

    async with serve_handler(babbling) as address, open_service(address, service="auth_service", keys=KEYS) as service:
        with pytest.raises(Unavailable):
            await service.readiness(timeout=SOON)


async def test_a_readiness_request_ends_at_its_timeout(deaf: str) -> None:
    async with asyncio.timeout(SOON), open_service(deaf, service="auth_service", keys=KEYS) as service:
        with pytest.raises(Unavailable):
            await service.readiness(timeout=0.2)


@dataclass
class Wire:
    """A service on the wire: what it was sent, by connection, and what it does about it."""

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
async def on_the_wire(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[ServiceClient, Wire]]:
    wire = Wire(answer)
    async with await asyncio.start_server(wire.serve, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_service(address, service="auth_service", keys=KEYS) as service:
            yield service, wire


def saying(*answers: bytes, close: bool = False) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Answers with one after the other, and always with the last; or breaks off where there is none to give."""
    left = list(answers)

    async def answer(writer: asyncio.StreamWriter) -> None:
        said = left.pop(0) if len(left) > 1 else left[0]
        writer.write(said)
        if close or not said:
            writer.close()

    return answer


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def read(service: ServiceClient, method: str = "GET", **kind: Any) -> bytes:
    async with service.open(make_caller(), method, ["x"], **kind) as response:
        return await response.read()


async def test_questions_follow_one_another_on_a_connection_that_is_kept() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    long = b"x" * (SMALL + 1)
    async with on_the_wire(saying(whole(b"1"), early + whole(b"2"), whole(long), whole(b"4"))) as (service, wire):
        asked = [
            await read(service),
            await read(service, "POST", data=b"a body"),
            await read(service),
            await read(service),
        ]
    assert asked == [b"1", b"2", long, b"4"]
    assert [len(requests) for requests in wire.sent] == [4]


async def test_an_answer_to_head_has_a_length_and_no_body() -> None:
    head = whole(b"", "200 OK").replace(b"Length: 0", b"Length: 7")
    async with on_the_wire(saying(head)) as (service, wire):
        for _ in range(2):
            async with service.open(make_caller(), "HEAD", ["x"]) as response:
                assert (response.content_length, await response.read()) == (7, b"")
    assert [len(requests) for requests in wire.sent] == [2]


async def test_two_questions_at_once_have_a_connection_each() -> None:
    both = asyncio.Barrier(2)

    async def answer(writer: asyncio.StreamWriter) -> None:
        await both.wait()
        writer.write(whole(b"1"))

    async with asyncio.timeout(SOON), on_the_wire(answer) as (service, wire):
        assert list(await asyncio.gather(read(service), read(service))) == [b"1", b"1"]
    assert [len(requests) for requests in wire.sent] == [1, 1]


async def test_a_read_is_asked_again_where_the_connection_ends_without_an_answer() -> None:
    async with on_the_wire(saying(whole(b"1"), b"", whole(b"2"))) as (service, wire):
        assert [await read(service), await read(service)] == [b"1", b"2"]
    assert [len(requests) for requests in wire.sent] == [2, 1]


async def test_a_read_is_not_asked_a_third_time() -> None:
    async with on_the_wire(saying(b"")) as (service, wire):
        with pytest.raises(Unavailable):
            await read(service)
    assert [len(requests) for requests in wire.sent] == [1, 1]


@each("method", ["POST", "PATCH", "DELETE"])
async def test_a_write_is_asked_once_whatever_becomes_of_the_connection(method: str) -> None:
    async with on_the_wire(saying(whole(b"1"), b"")) as (service, wire):
        assert await read(service) == b"1"
        with pytest.raises(Unavailable):
            await read(service, method, data=b"a body")
    assert [len(requests) for requests in wire.sent] == [2]


@each("begun", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"no HTTP\r\n\r\n"])
async def test_an_answer_that_is_none_or_not_whole_is_not_asked_for_again(begun: bytes) -> None:
    async with on_the_wire(saying(begun, close=True)) as (service, wire):
        with pytest.raises(Unavailable):
            await read(service)
    assert [len(requests) for requests in wire.sent] == [1]


async def test_who_does_not_wait_for_an_answer_leaves_no_connection_to_it() -> None:
    asked = asyncio.Event()

    async def stall(_: asyncio.StreamWriter) -> None:
        asked.set()

    async with asyncio.timeout(SOON), on_the_wire(stall) as (service, wire):
        asking = asyncio.create_task(read(service))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await wire.ended.wait()


async def test_a_long_answer_that_is_not_read_to_its_end_is_disconnected() -> None:
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
    async with asyncio.timeout(SOON), on_the_wire(saying(begun)) as (service, wire):
        async with service.open(make_caller(), "GET", ["x"]) as response:
            assert await anext(response.content.iter_any()) == b"half"
        await wire.ended.wait()


async def test_a_request_answered_before_it_was_read_ends_its_connection() -> None:
    heads: list[list[bytes]] = []

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        heads.append(mine)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            mine.append((await reader.readuntil(b"\r\n\r\n"))[:4])
            writer.write(whole(b"1"))
            await release.wait()
        writer.close()

    release = asyncio.Event()
    async with asyncio.timeout(SOON), await asyncio.start_server(hasty, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_service(address, service="auth_service", keys=KEYS) as service:
            assert await read(service, "POST", data=b"x" * (16 << 20)) == b"1"
            assert await read(service) == b"1"
            release.set()
    assert heads == [[b"POST"], [b"GET "]]


async def test_a_question_has_one_length_and_it_is_its_bodys() -> None:
    async with on_the_wire(saying(whole(b"1"))) as (service, wire):
        for data in (b"a body", b"", None):
            await read(service, "POST", data=data, headers={"content-length": "99"})
        await read(service)
    lengths = [request.lower().split(b"content-length: ")[1:] for request in wire.sent[0]]
    assert [[length.partition(b"\r")[0] for length in each] for each in lengths] == [[b"6"], [b"0"], [b"0"], []]


@each("broken", ["a\r\nX-Internal-Token: b", "a\nb", "a\rb", "a\0b"])
@each("where", ["value", "name", "query"])
async def test_no_part_of_a_question_ends_its_line(where: str, broken: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "value": {"headers": {"User-Agent": broken}},
        "name": {"headers": {broken: "x"}},
        "query": {"query": broken},
    }
    async with on_the_wire(saying(whole(b"1"))) as (service, wire):
        with pytest.raises(ValueError, match="more than one line"):
            await read(service, **kinds[where])
    assert wire.sent == []


async def test_one_network_holds_at_most_an_eighth_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
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
            running = start(service, STREAMS // 8, "2001:db8::{:x}")  # They are in one /64 network.
            await wait_for(STREAMS // 8)
            monkeypatch.setattr("common.service_client.client.STREAM_TIMEOUT", 0.01)
            with pytest.raises(Overloaded):
                await stream(service, "2001:db8::ffff")
            running += start(service, 1, "2001:db8:0:1::1")
            await wait_for(STREAMS // 8 + 1)
            release.set()
            await asyncio.gather(*running)
