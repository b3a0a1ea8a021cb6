"""The callers of every part: raw connections that keep next to nothing of an answer, so that the server is measured."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle, islice
from statistics import quantiles
from typing import cast

from yarl import URL

LIMIT = 300.0  # seconds that all answers of one measurement may take
LAST_CHUNK = b"0\r\n\r\n"
_BLOCK = memoryview(bytearray(256 << 10))  # Where all connections receive: what has been counted is not needed again.


class Refused(Exception):
    """A server answered otherwise than it should, or broke off."""


@dataclass(frozen=True)
class Call:
    """One request, as it goes over the wire again and again."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encoded(self) -> bytes:
        url = URL(self.url, encoded=True)
        lines = [f"{self.method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body or self.method == "POST":
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True)
class Answer:
    """What a server said: `headers` by their names in lower case, `size` bytes of body as they came."""

    status: int
    headers: Mapping[str, str]
    size: int


@dataclass(frozen=True)
class Taken:
    """How long each answer took, in seconds, and how many bytes one had."""

    seconds: Sequence[float]
    size: int

    def percentile(self, percent: int) -> float:
        """Milliseconds that so many of a hundred answers took at most."""
        return quantiles(self.seconds, n=100)[percent - 1] * 1000 if len(self.seconds) > 1 else self.seconds[0] * 1000


class Connection(asyncio.BufferedProtocol):
    """One connection, on which one request follows the other."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._head, self._tail, self._size = b"", b"", 0
        self._answer: Answer | None = None
        self._length: int | None = None  # None is for an answer in chunks
        self._answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def ask(self, raw: bytes) -> Answer:
        """Raises Refused where the server broke off."""
        self._begin()
        self.transport.write(raw)
        return await self._answered

    def stall(self) -> None:
        """Read nothing more."""
        self.transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name.

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(Refused(f"the server broke off: {exc or 'the end of its answer is missing'}"))
            self._answered.exception()  # Whoever does not wait any more need not hear of it.

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BLOCK

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is not None:
            self._received(nbytes, bytes(_BLOCK[max(0, nbytes - len(LAST_CHUNK)) : nbytes]))
            return
        self._head += _BLOCK[:nbytes]
        head, ended, body = self._head.partition(b"\r\n\r\n")
        if ended:
            self._understand(head.decode("latin-1"))
            self._received(len(body), body[-len(LAST_CHUNK) :])

    def _understand(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self._answer = Answer(int(first.split()[1]), headers, 0)
        chunked = "chunked" in headers.get("transfer-encoding", "")
        self._length = None if chunked else int(headers.get("content-length", 0))
        if self._answer.status == 304:
            self._length = 0

    def _received(self, size: int, tail: bytes) -> None:
        assert self._answer is not None
        self._size += size
        if self._length is None:
            self._tail = (self._tail + tail)[-len(LAST_CHUNK) :]
        whole = self._tail == LAST_CHUNK if self._length is None else self._size >= self._length
        if whole and not self._answered.done():
            self._answered.set_result(Answer(self._answer.status, self._answer.headers, self._size))


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[Sequence[Connection]]:
    """So many connections to a server."""
    there, loop = URL(url, encoded=True), asyncio.get_running_loop()
    assert there.host is not None
    assert there.port is not None
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(connections):
            transport, connection = await loop.create_connection(Connection, there.host, there.port)
            stack.callback(transport.close)
            opened.append(connection)
        yield opened


async def ask(call: Call) -> Answer:
    """Once, on a connection of its own. Raises Refused."""
    async with asyncio.timeout(LIMIT), connected(call.url, 1) as (connection,):
        return await connection.ask(call.encoded())


async def send(calls: Sequence[Call], times: int, *, connections: int = 32, status: int = 200) -> Taken:
    """Send so many requests to one server over so many connections, one call after the other and again from the first.

    Each connection sends its next request when it has its answer.

    Raises:
        Refused: an answer has another status.
        TimeoutError: they took longer than LIMIT.
    """
    left = islice(cycle([call.encoded() for call in calls]), times)
    seconds: list[float] = []
    sizes: set[int] = set()

    async def caller(connection: Connection) -> None:
        for raw in left:
            began = time.perf_counter()
            sizes.add(_expected(await connection.ask(raw), status))
            seconds.append(time.perf_counter() - began)

    async with asyncio.timeout(LIMIT), connected(calls[0].url, min(connections, times)) as opened:
        await asyncio.gather(*map(caller, opened))
    return Taken(seconds, max(sizes))


async def send_steadily(call: Call, rate: float, seconds: float, *, connections: int = 16) -> Taken:
    """Send `rate` requests a second, whether or not those before were answered.

    An answer's time begins when its request was due, so what a server that stands still makes others wait is counted;
    that this process woke up late is not.

    Raises:
        Refused: an answer is not a 200.
        TimeoutError: they took longer than LIMIT.
    """
    raw, numbers, begun = call.encoded(), count(), time.perf_counter()
    taken: list[float] = []
    sizes: set[int] = set()

    async def caller(connection: Connection) -> None:
        while (due := begun + next(numbers) / rate) < begun + seconds:
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
                due = time.perf_counter()
            sizes.add(_expected(await connection.ask(raw), 200))
            taken.append(time.perf_counter() - due)

    async with asyncio.timeout(LIMIT), connected(call.url, connections) as opened:
        await asyncio.gather(*map(caller, opened))
    return Taken(taken, max(sizes))


def _expected(answer: Answer, status: int) -> int:
    if answer.status != status:
        raise Refused(f"answered with {answer.status} instead of {status}")
    return answer.size
