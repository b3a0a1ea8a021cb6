"""What a catalog costs, from 100 to 100,000 packages: unchanged, compressed, known already, and after a write.

Costs are milliseconds of processor time of the process that answers, sixteen connections asking at the same time;
`first` is what the first answer after a write costs more than those after it. Writes a plot beside this module.

python -m tests.bench.catalog [largest number of packages]
"""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from catalog_service.model import PackageChanges
from catalog_service.store import MongoCatalogStore
from common.caller import Caller, Kind
from common.mongo import unhurried
from common.tenants import Tenant
from tests.bench.catalog_alone import Alone, Server, package_id, running
from tests.bench.plot import plot
from tests.bench.reading import Connection, Request, ask_often

SIZES = (100, 1_000, 10_000, 100_000)
LOGO = 3 << 10  # bytes
CONNECTIONS = 16
WRITES = 10
MEASURED = 0.5  # seconds of processor time that a figure is taken from, at least
PLOT = Path(__file__).with_name("catalog.svg")
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """The costs of one catalog, in milliseconds, and its bytes."""

    packages: int
    logos: bool
    size: int
    cold: float
    costs: dict[str, float]
    memory: int


async def measured(alone: Alone, packages: int, logo: int) -> Row:
    caller = Caller(Tenant(f"bench-{packages}-{logo}"), Kind.ADMINISTRATOR, username="admin")
    await alone.seed(caller.tenant_id, packages, logo)
    service, known = alone.service, {}
    began = time.perf_counter()
    with Connection(service.port) as connection:
        _, headers, size = await asyncio.to_thread(connection.ask, alone.catalog(caller).raw)
    cold = time.perf_counter() - began
    known["If-None-Match"] = headers["etag"]
    with alone.file.open("wb") as file:
        file.truncate(size)
    costs = {
        "bare hello": await _cost(alone.bare, lambda: alone.bare.get("/hello")),
        "304": await _cost(service, lambda: alone.catalog(caller, **known)),
        "unchanged": await _cost(service, lambda: alone.catalog(caller)),
        "bare handler": await _cost(alone.bare, lambda: alone.bare.get("/catalog")),
        **{f"nginx, sendfile {name}": await _cost(each, _file(each)) for name, each in alone.nginx.items()},
    }
    costs["gzip"] = await _cost(service, lambda: alone.catalog(caller, **{"Accept-Encoding": "gzip"}))
    first = await _first(alone, caller)
    costs |= {"first": max(first[0] - costs["unchanged"], 0.01), "first, wall": first[1]}
    with unhurried():
        await alone.database["packages"].delete_many({"tenant_id": caller.tenant_id})
    return Row(packages, bool(logo), size, cold, costs, service.largest_memory)


async def _first(alone: Alone, caller: Caller) -> tuple[float, float]:
    """Processor time and waiting, in milliseconds, for an answer with a write before it."""
    store = MongoCatalogStore(alone.database, uploads_age=1)
    before, walls = alone.service.spent, []
    with Connection(alone.service.port) as connection:
        for number in range(WRITES):
            await store.packages.change(caller.tenant_id, package_id(number), PackageChanges(name=f"New {number}"))
            began = time.perf_counter()
            await asyncio.to_thread(connection.ask, alone.catalog(caller).raw)
            walls.append(time.perf_counter() - began)
    return (alone.service.spent - before) / WRITES * 1000, min(walls) * 1000


async def _cost(server: Server, request: Callable[[], Request]) -> float:
    """Milliseconds of processor time for one answer."""
    rounds = 1
    while True:
        before = server.spent
        await asyncio.to_thread(ask_often, request(), rounds, CONNECTIONS)
        spent = server.spent - before
        if spent > MEASURED or rounds >= 4096:
            return spent / rounds / CONNECTIONS * 1000
        rounds *= 4


def _file(server: Server) -> Callable[[], Request]:
    return lambda: server.get("/catalog")


async def main(largest: int) -> None:
    """Measure, print a table, and write the plot."""
    rows = []
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        async with running(Path(name)) as alone:
            for packages in (size for size in SIZES if size <= largest):
                rows += [await measured(alone, packages, logo) for logo in ((LOGO, 0) if packages >= 1000 else (LOGO,))]
    names = list(rows[0].costs)
    table = Table("Packages", "MB", "Cold, s", *names, "Memory, MiB")
    for row in rows:
        label = f"{row.packages:,}{'' if row.logos else ', no logos'}"
        costs = [f"{row.costs[name]:.2f}" if row.costs[name] >= 0.1 else f"{row.costs[name]:.3f}" for name in names]
        table.add_row(label, f"{row.size / 1e6:.1f}", f"{row.cold:.1f}", *costs, f"{row.memory / MIB:.0f}")
    Console(width=200).print(table)
    curves = {name: [(row.packages, row.costs[name]) for row in rows if row.logos] for name in names}
    shown = {name: curves[name] for name in ("unchanged", "gzip", "first", "304", *names[4:-3]) if name in curves}
    if largest >= SIZES[1]:
        PLOT.write_text(plot("What an answer costs, 3 KB of logo each", "packages", "CPU, ms", shown), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else SIZES[-1]))
