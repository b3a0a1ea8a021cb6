"""The callers of every part: raw connections that discard answers, so the server dominates the cost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from statistics import quantiles
from typing import cast

from yarl import URL

LIMIT = 300.0  # seconds for all answers of one measurement
LAST_CHUNK = b"0\r\n\r\n"
_BLOCK = memoryview(bytearray(256 << 10))  # All connections receive here, because only sizes are counted.


class UnexpectedAnswer(Exception):
    """A server sent an unexpected answer, or closed the connection."""


@dataclass(frozen=True)
class Call:
    """One request that is sent repeatedly."""

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
    """An answer. `headers` have names in lower case; `size` is the encoded size of the body in bytes."""

    status: int
    headers: Mapping[str, str]
    size: int


@dataclass(frozen=True)
class Timings:
    """The response times in seconds, and the size of one answer in bytes."""

    seconds: Sequence[float]
    size: int

    def percentile(self, percent: int) -> float:
        """The percentile of the response times in milliseconds."""
        return quantiles(self.seconds, n=100)[percent - 1] * 1000 if len(self.seconds) > 1 else self.seconds[0] * 1000


class Connection(asyncio.BufferedProtocol):
    """A connection that sends one request after another."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._head, self._tail, self._size = b"", b"", 0
        self._answer: Answer | None = None
        self._length: int | None = None  # None for a chunked answer
        self._answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def send(self, raw: bytes) -> Answer:
        """Send a request. Raises UnexpectedAnswer if the server closes the connection."""
        self._begin()
        self.transport.write(raw)
        return await self._answered

    def stall(self) -> None:
        """Stop reading."""
        self.transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass.

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(
                UnexpectedAnswer(f"the server closed the connection: {exc or 'the end of its answer is missing'}")
            )
            self._answered.exception()  # Avoids a warning if nothing awaits it.

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BLOCK

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is not None:
            self._received(nbytes, bytes(_BLOCK[max(0, nbytes - len(LAST_CHUNK)) : nbytes]))
            return
        self._head += _BLOCK[:nbytes]
        head, ended, body = self._head.partition(b"\r\n\r\n")
        if ended:
            self._parse_head(head.decode("latin-1"))
            self._received(len(body), body[-len(LAST_CHUNK) :])

    def _parse_head(self, head: str) -> None:
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
async def open_connections(
    url: str, connections: int, hosts: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[Sequence[Connection]]:
    """Open connections to a server, from these addresses in turn."""
    address, loop = URL(url, encoded=True), asyncio.get_running_loop()
    assert address.host is not None
    assert address.port is not None
    async with AsyncExitStack() as stack:
        opened = []
        for number in range(connections):
            local = hosts[number % len(hosts)], 0
            transport, connection = await loop.create_connection(
                Connection, address.host, address.port, local_addr=local
            )
            stack.callback(transport.close)
            opened.append(connection)
        yield opened


async def send_once(call: Call) -> Answer:
    """Send a request on a new connection. Raises UnexpectedAnswer."""
    async with asyncio.timeout(LIMIT), open_connections(call.url, 1) as (connection,):
        return await connection.send(call.encoded())


async def send(
    calls: Sequence[Call],
    times: int,
    *,
    connections: int = 32,
    status: int = 200,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> Timings:
    """Send `times` requests to one server over several connections from `hosts`, repeating the calls in order.

    Each connection sends its next request when it has its answer.

    Raises:
        UnexpectedAnswer: an answer has another status.
        TimeoutError: they took longer than LIMIT.
    """
    remaining = islice(cycle([call.encoded() for call in calls]), times)
    seconds: list[float] = []
    sizes: set[int] = set()

    async def caller(connection: Connection) -> None:
        for raw in remaining:
            began = time.perf_counter()
            answer = await connection.send(raw)
            if answer.status != status:
                raise UnexpectedAnswer(f"answered with {answer.status} instead of {status}")
            sizes.add(answer.size)
            seconds.append(time.perf_counter() - began)

    async with asyncio.timeout(LIMIT), open_connections(calls[0].url, min(connections, times), hosts) as opened:
        await asyncio.gather(*map(caller, opened))
    return Timings(seconds, max(sizes))


@dataclass
class SteadyAnswers:
    """The response times, the answers by status, and how long all took in seconds. Status 0 is a lost connection."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    elapsed: float = 0.0

    @property
    def errors(self) -> int:
        return sum(number for status, number in self.statuses.items() if status not in {200, 204})

    def percentile(self, percent: int) -> float:
        """The percentile of the response times in milliseconds."""
        return Timings(self.seconds, 0).percentile(percent)


async def send_steadily(url: str, requests: Sequence[bytes], rate: float, *, connections: int = 16) -> SteadyAnswers:
    """Send `rate` requests a second, whether or not earlier ones were answered. Raises TimeoutError after LIMIT.

    A response time begins when the request was due, so waits behind a stalled server count. Late wake-ups of this
    process do not count.
    """
    answers, numbers, begun = SteadyAnswers(), count(), time.perf_counter()

    async def caller(connection: Connection) -> None:
        while (index := next(numbers)) < len(requests):
            due = begun + index / rate
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
                due = time.perf_counter()
            try:
                answers.statuses[(await connection.send(requests[index])).status] += 1
            except UnexpectedAnswer:
                answers.statuses[0] += 1
                return
            answers.seconds.append(time.perf_counter() - due)

    async with asyncio.timeout(LIMIT), open_connections(url, connections) as opened:
        await asyncio.gather(*map(caller, opened))
    answers.elapsed = time.perf_counter() - begun
    return answers


async def repeat_steadily(call: Call, rate: float, seconds: float) -> SteadyAnswers:
    """Send one request steadily. Raises UnexpectedAnswer if an answer is not a 200."""
    answers = await send_steadily(call.url, [call.encoded()] * max(1, round(rate * seconds)), rate)
    if answers.statuses.keys() != {200}:
        raise UnexpectedAnswer(f"answered with {dict(answers.statuses)}")
    return answers
