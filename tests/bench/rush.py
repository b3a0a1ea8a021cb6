"""Five thousand requests at one instant, then callers who never end: who is served, who told to come again, who let go?

python -m tests.bench.rush [requests]
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, TCPConnector
from rich.console import Console

from tests.bench.processes import Bench, running

OPERATIONS = (("GET", "test"), ("POST", "get_packages"), ("GET", "get_users"), ("POST", "client_version"))
HEADS, HEAD_ALLOWED = 500, 20.0  # how many, and the seconds they may stay
BODIES, BODY_ALLOWED = 200, 60.0
PAUSE = 1.0  # seconds from one byte of theirs to the next

Answer = tuple[str, float]


@dataclass(frozen=True)
class Found:
    """What came of it: a sentence for each, and whether it is as promised."""

    sentence: str
    kept: bool


async def at_one_instant(bench: Bench, requests: int) -> Found:
    """Only 200, or 503 with `Retry-After`; each on a connection of its own."""
    before = bench.largest_memory("gateway")
    headers = {"Authorization": bench.session.headers["Authorization"]}
    async with ClientSession(connector=TCPConnector(limit=0, force_close=True), headers=headers) as crowd:

        async def call(method: str, operation: str) -> Answer:
            started = time.monotonic()
            try:
                async with crowd.request(method, f"{bench.base_url}/{operation}") as answer:
                    await answer.read()
                    told = " and when to come again" if "Retry-After" in answer.headers else ""
                    return f"{answer.status}{told}", time.monotonic() - started
            except (ClientError, TimeoutError) as error:
                return f"lost: {type(error).__name__}", time.monotonic() - started

        calls = [OPERATIONS[number % len(OPERATIONS)] for number in range(requests)]
        answers = await asyncio.gather(*(call(*operation) for operation in calls))
    counted = Counter(kind for kind, _ in answers)
    grown = (bench.largest_memory("gateway") - before) >> 20
    sentence = f"{requests} at once: {dict(counted)}, the slowest after {max(spent for _, spent in answers):.1f} s; "
    sentence += f"the gateway grew by {grown} MiB"
    return Found(sentence, counted.keys() <= {"200", "503 and when to come again"} and counted["200"] > 0)


async def never_ending(bench: Bench, what: str, start: bytes, count: int, allowed: float) -> Found:
    """All are let go in time, and an honest caller is served meanwhile."""
    honest = asyncio.ensure_future(_served(bench))
    stayed = await asyncio.gather(*(_dribble(bench, start) for _ in range(count)))
    honest.cancel()
    slowest, answers = max(stayed), (await asyncio.gather(honest, return_exceptions=True))[0]
    kept = slowest <= allowed and isinstance(answers, asyncio.CancelledError)
    return Found(f"{count} {what}: the last was let go after {slowest:.1f} s; an honest caller was served", kept)


async def _dribble(bench: Bench, start: bytes) -> float:
    """The seconds after which a caller is let go who sends one byte after the other."""
    url = urlsplit(bench.base_url)
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    gone = asyncio.ensure_future(reader.read())
    writer.write(start)
    while not gone.done():
        await asyncio.wait({gone}, timeout=PAUSE)
        writer.write(b"a")
    gone.exception()  # A connection that is reset has ended, too.
    writer.transport.abort()
    return time.monotonic() - began


async def _served(bench: Bench) -> None:
    """Ask again and again; raises what becomes of a request that is not answered with 200."""
    while True:
        async with bench.session.get(f"{bench.base_url}/get_users") as answer:
            await answer.read()
        await asyncio.sleep(PAUSE)


async def main(requests: int) -> bool:
    """Whether all is as promised."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        async with running(Path(name)) as bench:
            path = urlsplit(bench.base_url).path
            head = f"POST {path}/login HTTP/1.1\r\nHost: x\r\n"
            body = f"{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9999\r\n\r\n"
            tries: list[Callable[[], Awaitable[Found]]] = [
                lambda: at_one_instant(bench, requests),
                lambda: never_ending(bench, "heads", f"{head}X: ".encode(), HEADS, HEAD_ALLOWED),
                lambda: never_ending(bench, "bodies", body.encode(), BODIES, BODY_ALLOWED),
            ]
            kept = []
            for attempt in tries:
                found = await attempt()
                kept.append(found.kept)
                Console().print(f"{'as promised' if found.kept else 'NOT AS PROMISED'}: {found.sentence}")
    return all(kept)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)) else 1)
