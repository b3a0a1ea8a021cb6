"""What the requests of a working day cost, as multiples of a bare aiohttp handler that runs beside them.

python -m tests.bench.requests [packages]
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Table

from tests.bench.catalogs import seed
from tests.bench.load import Call, send
from tests.bench.processes import PASSWORD, Bench, running, spent, started
from tests.ports import answering, free_port

CLIENTS = 500
FORM = ("Content-Type", "application/x-www-form-urlencoded")


@dataclass(frozen=True)
class Row:
    """A request of the table: how often it is sent, and how many times a bare handler's cost it may have."""

    title: str
    calls: Sequence[Call]
    times: int
    budget: float | None = None
    status: int = 200
    connections: int = 32
    warm: int = 500  # times before it is measured


async def rows(bench: Bench) -> Sequence[Row]:
    """The requests, as an administrator and a client send them."""
    bearer = ("Authorization", bench.session.headers["Authorization"])
    clients = [await _client(bench, number) for number in range(CLIENTS)]
    sign_in = urlencode({"username": "admin", "password": PASSWORD}).encode()

    def calls(method: str, operation: str, *headers: tuple[str, str], body: bytes = b"") -> Sequence[Call]:
        return [Call(method, f"{bench.base_url}/{operation}", headers, body)]

    catalog = calls("POST", "get_packages", FORM, body=clients[0])
    async with bench.session.post(
        catalog[0].url, data=clients[0], headers=[FORM, ("Accept-Encoding", "identity")]
    ) as answer:
        tag = "If-None-Match", answer.headers["ETag"]
    many = [Call("POST", f"{bench.base_url}/client_version", (FORM,), body) for body in clients]
    return [
        Row("client_version, each client anew", many, CLIENTS, warm=0),
        Row("client_version, client token", many[:1], 10_000, 2.4),
        Row("test", calls("GET", "test", bearer), 10_000, 2.2),
        Row("get_packages, known (304)", calls("POST", "get_packages", FORM, tag, body=clients[0]), 5000, 2.2, 304),
        Row("get_packages, unchanged", catalog, 300),
        Row("get_package_versions", calls("GET", "get_package_versions/Bench.000000", bearer), 2000, 20.0),
        Row("server_information", calls("GET", "server_information", bearer), 2000),
        Row("login", calls("POST", "login", FORM, body=sign_in), 100, connections=4, warm=10),
    ]


async def _client(bench: Bench, number: int) -> bytes:
    """What a client of the tenant sends, a new one."""
    async with bench.session.post(f"{bench.base_url}/add_client", data={"client_name": f"pc-{number}"}) as answer:
        return urlencode({"auth_token": (await answer.json())["auth_token"], "client": "1"}).encode()


async def main(packages: int) -> None:
    """Measure every request, each between two measurements of the bare handler."""
    table = Table("Request", "p50 ms", "p99 ms", "gateway µs", "services µs", "all µs", "bare µs", "ratio", "budget")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pkgrepo-")))
        bench = await stack.enter_async_context(running(folder))
        port = free_port()
        bare = await stack.enter_async_context(started("tests.bench.bare", str(port), "/dev/null"))
        await answering(port, b"GET /hello HTTP/1.1\r\nHost: bench\r\n\r\n", b"HTTP/1.1 200")
        await seed(bench, packages)
        for row in await rows(bench):
            if row.warm:
                await send(row.calls, row.warm, connections=row.connections, status=row.status)
            before = {name: bench.cpu(name) for name in bench.processes}
            taken = await send(row.calls, row.times, connections=row.connections, status=row.status)
            cost = {name: (bench.cpu(name) - was) / row.times * 1e6 for name, was in before.items()}
            hello = await _hello(bare, port)
            total, gateway = sum(cost.values()), cost["gateway"]
            numbers = f"{gateway:.0f}", f"{total - gateway:.0f}", f"{total:.0f}", f"{hello:.0f}", f"{total / hello:.1f}"
            times = f"{taken.percentile(50):.1f}", f"{taken.percentile(99):.1f}"
            table.add_row(row.title, *times, *numbers, f"{row.budget:.1f}" if row.budget else "")
    console = Console(width=120)
    console.print(f"{packages} packages; CPU time a request, {', '.join(bench.processes)} as processes of their own")
    console.print(table)


async def _hello(bare: int, port: int) -> float:
    """Microseconds of processor time that the bare handler needs for an answer, now."""
    before = spent(bare)
    await send([Call("GET", f"http://127.0.0.1:{port}/hello")], 10_000)
    return (spent(bare) - before) / 10_000 * 1e6


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
