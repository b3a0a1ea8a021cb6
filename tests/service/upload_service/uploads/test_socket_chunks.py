"""Large chunks, which a thread receives from the socket: interrupted, slow, wrong, and several on one connection."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import orjson
import pytest
from yarl import URL

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.http.zero_copy.socket_body import Sink, SocketBody
from tests.support.factories import KEY
from tests.support.services.replicas import Replicas
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.wait import TIMEOUT, until

SIZE = 4_000_000  # bytes; half of it is more than the buffers before the service
HALF = SIZE // 2
PIECE = 200_000
FILE = os.urandom(SIZE)
OTHER = os.urandom(SIZE)
DELIMITER = b"\r\n--b"
START = b'--b\r\nContent-Disposition: form-data; name="chunk"; filename="c.exe"\r\n\r\n'
END = DELIMITER + b"--\r\n"


@pytest.fixture(autouse=True)
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits of the blocks that a thread received."""
    limits, receive = list[int](), SocketBody.receive

    async def recorded(body: SocketBody, sink: Sink) -> None:
        limits.append(body.limit)
        await receive(body, sink)

    monkeypatch.setattr("common.http.zero_copy.socket_body.LEAST", 1000)
    monkeypatch.setattr("common.http.zero_copy.socket_body.PAUSE", 0.001)
    monkeypatch.setattr(SocketBody, "receive", recorded)
    return limits


@dataclass(frozen=True)
class Connection:
    """A connection of a caller to upload_service."""

    caller: Caller
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def head(self, method: str, *lines: str) -> bytes:
        token = sign(KEY, self.caller, service="upload_service", operation="upload_package_version")
        first = (f"{method} /{self.caller.tenant_id}/upload_package_version HTTP/1.1", "Host: x", "X-File-ID: f")
        return "\r\n".join([*first, f"{INTERNAL_TOKEN}: {token}", *lines, "", ""]).encode()

    def chunk_head(self, start: int, stop: int, body: bytes, *, total: int = SIZE) -> bytes:
        return self.head(
            "POST",
            f"Content-Range: bytes {start}-{stop - 1}/{total}",
            "Content-Type: multipart/form-data; boundary=b",
            f"Content-Length: {len(body)}",
        )

    async def send(self, *pieces: bytes) -> None:
        """Send each piece after the service has received those before it."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.01)

    async def send_chunk(self, start: int, stop: int, data: bytes, *, end: bytes = END) -> None:
        body = START + data + end
        await self.send(self.chunk_head(start, stop, body) + body[:200], *in_pieces(body[200:]))

    async def begin_chunk(self, start: int, stop: int, data: bytes) -> bytes:
        """Send the first piece of a chunk. Returns the rest of its body."""
        body = START + data + END
        await self.send(self.chunk_head(start, stop, body) + body[:200], body[200:PIECE])
        return body[PIECE:]

    async def send_half(self) -> None:
        await self.send_chunk(0, HALF, FILE[:HALF])
        assert (await self.answer())[1]["received"] == HALF

    async def answer(self) -> tuple[int, dict[str, object]]:
        async with asyncio.timeout(TIMEOUT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return int(head.split(b" ")[1]), orjson.loads(await self.reader.readexactly(length))

    async def state(self) -> tuple[int, dict[str, object]]:
        """The state of the transfer, over the same connection."""
        await self.send(self.head("GET"))
        return await self.answer()


def in_pieces(data: bytes) -> list[bytes]:
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)]


@asynccontextmanager
async def connected(api: UploadApi, caller: Caller | None = None) -> AsyncIterator[Connection]:
    address = URL(api.service.address)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Connection(caller or make_uploader(), reader, writer)
    finally:
        writer.close()


async def finish(api: UploadApi, caller: Caller, offset: int) -> None:
    """Send the rest of the file, and compare what is stored."""
    last = await api.chunk(caller, "f", FILE[offset:], offset, SIZE)
    assert (last.status, last.body.get("sha256")) == (200, sha256(FILE))
    assert (api.folder / caller.tenant_id / last.body["server_filename"]).read_bytes() == FILE


async def test_chunks_and_other_requests_share_a_connection(api: UploadApi, received: list[int]) -> None:
    async with connected(api) as connection:
        await connection.send_half()
        assert (await connection.state())[1]["received"] == HALF
        await connection.send_chunk(HALF, SIZE, FILE[HALF:])
        assert (await connection.answer())[1]["sha256"] == sha256(FILE)
        assert (await connection.state())[1]["complete"]
    assert len(received) == 2


async def test_a_request_sent_together_with_the_end_of_a_chunk_is_answered(api: UploadApi, received: list[int]) -> None:
    async with connected(api) as connection:
        body = START + FILE[:HALF] + END
        await connection.send(connection.chunk_head(0, HALF, body) + body[:200], body[200:] + connection.head("GET"))
        assert [(await connection.answer())[1]["received"] for _ in range(2)] == [HALF, HALF]
        body = START + FILE[HALF:] + END
        await connection.send(connection.chunk_head(HALF, SIZE, body) + body + connection.head("GET"))
        assert [(await connection.answer())[1]["sha256"] for _ in range(2)] == [sha256(FILE)] * 2
    assert received


async def test_a_chunk_that_ends_early_changes_nothing(api: UploadApi, received: list[int]) -> None:
    async with connected(api) as connection:
        await connection.send_half()
        await connection.begin_chunk(HALF, SIZE, OTHER[HALF:])
    assert len(received) == 2
    assert (await api.state(connection.caller, "f")).body["received"] == HALF
    await finish(api, connection.caller, HALF)


async def test_a_chunk_that_stalls_is_rejected(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, received: list[int]
) -> None:
    async with connected(api) as connection:
        await connection.send_half()
        monkeypatch.setattr("common.http.bodies.TIMEOUT", 0.2)
        await connection.begin_chunk(HALF, SIZE, OTHER[HALF:])
        status, answer = await connection.answer()
    assert (status, answer["received"], len(received)) == (400, HALF, 2)
    monkeypatch.undo()
    await finish(api, connection.caller, HALF)


async def test_a_chunk_whose_network_fails_is_rejected(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, received: list[int]
) -> None:
    receive = socket.socket.recv_into
    async with connected(api) as connection:
        sender = connection.writer.get_extra_info("sockname")

        def fail(receiver: socket.socket, buffer: memoryview, *arguments: int) -> int:
            if receiver.getpeername() == sender:
                raise OSError(errno.EHOSTUNREACH, "a fault of a test")
            return receive(receiver, buffer, *arguments)

        monkeypatch.setattr(socket.socket, "recv_into", fail)
        await connection.begin_chunk(0, SIZE, FILE)
        status, answer = await connection.answer()
    assert (status, answer["code"], len(received)) == (400, "invalid_request", 1)


async def test_a_connection_stays_usable_after_a_full_disk(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, received: list[int]
) -> None:
    async with connected(api) as connection:
        await connection.send_half()

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no room")

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            await connection.send_chunk(HALF, SIZE, FILE[HALF:])
            status, answer = await connection.answer()
        assert (status, answer["code"], answer["received"]) == (500, "storage_full", HALF)
        await connection.send_chunk(HALF, SIZE, FILE[HALF:])
        assert (await connection.answer())[1]["sha256"] == sha256(FILE)
    assert len(received) == 3


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (OTHER[HALF:], DELIMITER + b"\r\n" + START[5:] + b"x" + END),
        (OTHER[HALF:], DELIMITER + b"\r\n" + b" " * 30),
        (OTHER[HALF:-1000], END),
    ],
    ids=["two chunks", "no end", "shorter than its range"],
)
async def test_a_malformed_chunk_is_rejected_and_changes_nothing(
    api: UploadApi, received: list[int], data: bytes, end: bytes
) -> None:
    async with connected(api) as connection:
        await connection.send_half()
        await connection.send_chunk(HALF, SIZE, data, end=end)
        status, answer = await connection.answer()
        assert (status, answer["received"], len(received)) == (400, HALF, 2)
        assert (await connection.state())[1]["received"] == HALF
    await finish(api, connection.caller, HALF)


async def test_a_large_file_in_one_call_needs_its_own_size_of_quota(api: UploadApi, received: list[int]) -> None:
    parts = ("a", "1", None), ("file", FILE, "setup.exe"), ("b", "2", None)
    caller = make_uploader(storage_quota=SIZE)
    answer = await api.store(caller, *parts)
    assert (answer.status, answer.body["sha256"]) == (200, sha256(FILE))
    assert answer.body["fields"] == [["a", "1"], ["b", "2"]]
    assert await api.usage(caller) == (0, SIZE)
    assert len(received) == 1
    caller = make_uploader(storage_quota=SIZE - 1)
    assert (await api.store(caller, *parts)).status == 407
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))


async def test_a_stale_thread_changes_no_acknowledged_byte(replicas: Replicas, received: list[int]) -> None:
    async with connected(replicas.first) as connection:
        caller = connection.caller
        await connection.send_half()
        rest = await connection.begin_chunk(HALF, SIZE, OTHER[HALF:])
        part = replicas.first.part(caller, "f")

        async def is_writing() -> bool:
            return len(received) == 2 and part.stat().st_size > HALF

        await until(is_writing)
        await replicas.expire_lease(caller)
        stop = HALF + 1000
        fresh = await replicas.send(caller, HALF, stop, second=True, content=FILE)
        assert (fresh.status, fresh.body["received"]) == (200, stop)
        await connection.send(*in_pieces(rest))
        assert (await connection.answer())[0] == 500
    await finish(replicas.second, caller, stop)


async def test_many_slow_senders_leave_threads_for_others(api: UploadApi, received: list[int]) -> None:
    small = FILE[:50_000]
    async with AsyncExitStack() as stack:
        # More than the threads of a process.
        senders = [await stack.enter_async_context(connected(api)) for _ in range(40)]
        body = START + small + END
        for connection in senders:
            await connection.send(connection.chunk_head(0, len(small), body, total=len(small)) + body[:5000])

        async def all_wait() -> bool:
            return len(received) >= len(senders)

        await until(all_wait)
        async with asyncio.timeout(TIMEOUT):
            await api.upload(make_uploader(), FILE)
            for connection in senders:
                await connection.send(body[5000:])
                assert (await connection.answer())[1]["sha256"] == sha256(small)
