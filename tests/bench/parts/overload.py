"""Simultaneous requests and endless callers: answered, rejected and disconnected requests."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, TCPConnector

from tests.bench.report import PartResult, Section
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, run_services

OPERATIONS = (("GET", "test"), ("POST", "get_packages"), ("GET", "get_users"), ("POST", "client_version"))
HEAD_ALLOWED, BODY_ALLOWED = 20.0, 60.0  # seconds until an endless caller is disconnected
PAUSE = 1.0  # seconds between two bytes of an endless caller

Answer = tuple[str, float]


@dataclass(frozen=True)
class Outcome:
    """The result of one kind of overload, as a sentence."""

    sentence: str
    as_promised: bool


async def simultaneous_requests(bench: Bench, account: Account, requests: int) -> Outcome:
    """Send requests on separate connections. Each must get 200, or 503 with `Retry-After`."""
    before = bench.processes["gateway"].largest_memory
    headers = dict([account.bearer])
    async with ClientSession(connector=TCPConnector(limit=0, force_close=True), headers=headers) as crowd:

        async def call(method: str, operation: str) -> Answer:
            started = time.monotonic()
            try:
                async with crowd.request(method, f"{account.base_url}/{operation}") as answer:
                    await answer.read()
                    retry = " with Retry-After" if "Retry-After" in answer.headers else ""
                    return f"{answer.status}{retry}", time.monotonic() - started
            except (ClientError, TimeoutError) as error:
                return f"lost: {type(error).__name__}", time.monotonic() - started

        calls = [OPERATIONS[number % len(OPERATIONS)] for number in range(requests)]
        answers = await asyncio.gather(*(call(*operation) for operation in calls))
    counted = Counter(kind for kind, _ in answers)
    grown = (bench.processes["gateway"].largest_memory - before) >> 20
    sentence = f"{requests} at once: {dict(counted)}, the slowest after {max(spent for _, spent in answers):.1f} s; "
    sentence += f"the gateway grew by {grown} MiB"
    return Outcome(sentence, counted.keys() <= {"200", "503 with Retry-After"} and counted["200"] > 0)


async def endless_callers(
    bench: Bench, account: Account, what: str, start: bytes, count: int, allowed: float
) -> Outcome:
    """Check that all endless callers are disconnected in time, and a normal caller is served meanwhile."""
    normal_caller = asyncio.ensure_future(_check_served(bench, account))
    stayed = await asyncio.gather(*(_send_bytewise(account, start) for _ in range(count)))
    normal_caller.cancel()
    slowest, answers = max(stayed), (await asyncio.gather(normal_caller, return_exceptions=True))[0]
    as_promised = slowest <= allowed and isinstance(answers, asyncio.CancelledError)
    return Outcome(
        f"{count} {what}: the last was disconnected after {slowest:.1f} s; a normal caller was served", as_promised
    )


async def _send_bytewise(account: Account, start: bytes) -> float:
    """Send single bytes until the gateway disconnects. Returns the seconds."""
    url = urlsplit(account.base_url)
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    closed = asyncio.ensure_future(reader.read())
    writer.write(start)
    while not closed.done():
        await asyncio.wait({closed}, timeout=PAUSE)
        writer.write(b"a")
    closed.exception()  # A reset also ends the connection.
    writer.transport.abort()
    return time.monotonic() - began


async def _check_served(bench: Bench, account: Account) -> None:
    """Repeat a request. Raises the error of a request that fails."""
    headers = dict([account.bearer])
    while True:
        async with bench.session.get(f"{account.base_url}/get_users", headers=headers) as answer:
            await answer.read()
        await asyncio.sleep(PAUSE)


async def measure(run: Run) -> PartResult:
    """Measure all kinds of overload."""
    async with run_services(run.stores) as bench:
        account = await bench.account("bench-rush")
        path = urlsplit(account.base_url).path
        head = f"POST {path}/login HTTP/1.1\r\nHost: x\r\n"
        body = f"{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9999\r\n\r\n"
        outcomes = [await simultaneous_requests(bench, account, run.scale.rush)]
        if run.scale.endless:
            heads, bodies = run.scale.endless, run.scale.endless * 2 // 5
            outcomes.append(await endless_callers(bench, account, "heads", f"{head}X: ".encode(), heads, HEAD_ALLOWED))
            outcomes.append(await endless_callers(bench, account, "bodies", body.encode(), bodies, BODY_ALLOWED))
    rows = [(each.sentence, "yes" if each.as_promised else "**no**") for each in outcomes]
    result = PartResult(
        sections=[Section("A rush, and callers who never end", "", ("what happened", "as promised?"), rows)]
    )
    result.failures += [f"rush: {each.sentence}" for each in outcomes if not each.as_promised]
    return result
