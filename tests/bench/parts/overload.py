"""Requests at one instant, then callers who never end: who is served, who told to come again, who let go?"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, TCPConnector

from tests.bench.report import Found, Section
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, running

OPERATIONS = (("GET", "test"), ("POST", "get_packages"), ("GET", "get_users"), ("POST", "client_version"))
HEAD_ALLOWED, BODY_ALLOWED = 20.0, 60.0  # seconds that they may stay
PAUSE = 1.0  # seconds from one byte of theirs to the next

Answer = tuple[str, float]


@dataclass(frozen=True)
class Came:
    """What came of it: a sentence for each, and whether it is as promised."""

    sentence: str
    kept: bool


async def at_one_instant(bench: Bench, account: Account, requests: int) -> Came:
    """Only 200, or 503 with `Retry-After`; each on a connection of its own."""
    before = bench.processes["gateway"].largest_memory
    headers = dict([account.bearer])
    async with ClientSession(connector=TCPConnector(limit=0, force_close=True), headers=headers) as crowd:

        async def call(method: str, operation: str) -> Answer:
            started = time.monotonic()
            try:
                async with crowd.request(method, f"{account.base_url}/{operation}") as answer:
                    await answer.read()
                    told = " and when to come again" if "Retry-After" in answer.headers else ""
                    return f"{answer.status}{told}", time.monotonic() - started
            except (ClientError, TimeoutError) as error:
                return f"lost: {type(error).__name__}", time.monotonic() - started

        calls = [OPERATIONS[number % len(OPERATIONS)] for number in range(requests)]
        answers = await asyncio.gather(*(call(*operation) for operation in calls))
    counted = Counter(kind for kind, _ in answers)
    grown = (bench.processes["gateway"].largest_memory - before) >> 20
    sentence = f"{requests} at once: {dict(counted)}, the slowest after {max(spent for _, spent in answers):.1f} s; "
    sentence += f"the gateway grew by {grown} MiB"
    return Came(sentence, counted.keys() <= {"200", "503 and when to come again"} and counted["200"] > 0)


async def never_ending(bench: Bench, account: Account, what: str, start: bytes, count: int, allowed: float) -> Came:
    """All are let go in time, and an honest caller is served meanwhile."""
    honest = asyncio.ensure_future(_served(bench, account))
    stayed = await asyncio.gather(*(_dribble(account, start) for _ in range(count)))
    honest.cancel()
    slowest, answers = max(stayed), (await asyncio.gather(honest, return_exceptions=True))[0]
    kept = slowest <= allowed and isinstance(answers, asyncio.CancelledError)
    return Came(f"{count} {what}: the last was let go after {slowest:.1f} s; an honest caller was served", kept)


async def _dribble(account: Account, start: bytes) -> float:
    """The seconds after which a caller is let go who sends one byte after the other."""
    url = urlsplit(account.base_url)
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


async def _served(bench: Bench, account: Account) -> None:
    """Ask again and again; raises what becomes of a request that is not answered with 200."""
    headers = dict([account.bearer])
    while True:
        async with bench.session.get(f"{account.base_url}/get_users", headers=headers) as answer:
            await answer.read()
        await asyncio.sleep(PAUSE)


async def measure(run: Run) -> Found:
    """What came of each, and whether it is as promised."""
    async with running(run.stores) as bench:
        account = await bench.account("bench-rush")
        path = urlsplit(account.base_url).path
        head = f"POST {path}/login HTTP/1.1\r\nHost: x\r\n"
        body = f"{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9999\r\n\r\n"
        came = [await at_one_instant(bench, account, run.scale.rush)]
        if run.scale.endless:
            heads, bodies = run.scale.endless, run.scale.endless * 2 // 5
            came.append(await never_ending(bench, account, "heads", f"{head}X: ".encode(), heads, HEAD_ALLOWED))
            came.append(await never_ending(bench, account, "bodies", body.encode(), bodies, BODY_ALLOWED))
    rows = [(each.sentence, "yes" if each.kept else "**no**") for each in came]
    found = Found(
        sections=[Section("A rush, and callers who never end", "", ("what came of it", "as promised?"), rows)]
    )
    found.failures += [f"rush: {each.sentence}" for each in came if not each.kept]
    return found
