"""Many callers at once, each on a connection of its own that it keeps: what they get, and how long it takes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import quantiles

from yarl import URL


@dataclass(frozen=True)
class Call:
    """One request, as it goes over the wire again and again."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encoded(self) -> bytes:
        url = URL(self.url)
        lines = [f"{self.method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body or self.method == "POST":
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True)
class Taken:
    """How long each answer took, in seconds, and how many bytes one had."""

    seconds: Sequence[float]
    size: int

    def percentile(self, percent: int) -> float:
        """Milliseconds that so many of a hundred answers took at most."""
        return quantiles(self.seconds, n=100)[percent - 1] * 1000


async def send(calls: Sequence[Call], times: int, *, connections: int = 32, status: int = 200) -> Taken:
    """Send so many requests to one server over so many connections, one call after the other and again from the first.

    Raises:
        AssertionError: an answer has another status.
    """
    url, encoded = URL(calls[0].url), [call.encoded() for call in calls]
    left = islice(cycle(encoded), times)
    seconds: list[float] = []
    sizes: set[int] = set()

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=1 << 20)
        try:
            for raw in left:
                began = time.perf_counter()
                writer.write(raw)
                sizes.add(await _answer(reader, status))
                seconds.append(time.perf_counter() - began)
        finally:
            writer.close()
            await writer.wait_closed()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(connections, times)):
            group.create_task(caller())
    return Taken(seconds, max(sizes))


async def _answer(reader: asyncio.StreamReader, status: int) -> int:
    """Read one answer to its end; the size of its body in bytes."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 %d " % status):
        raise AssertionError(head.decode("latin-1").partition("\r\n")[0])
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    if status == 304:
        return 0
    if fields.get(b"transfer-encoding") == b"chunked":
        return await _chunks(reader)
    left = size = int(fields[b"content-length"])
    while left:
        left -= len(await reader.read(min(left, 1 << 18)))
    return size


async def _chunks(reader: asyncio.StreamReader) -> int:
    size = 0
    while length := int(await reader.readline(), 16):
        await reader.readexactly(length + 2)
        size += length
    await reader.readline()
    return size
