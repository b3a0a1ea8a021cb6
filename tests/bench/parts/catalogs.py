"""What catalogs cost through the gateway, from 100 to 100,000 packages: unchanged, known, compressed, after a write."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.callers.load import Call, ask, connected, send
from tests.bench.callers.seeding import BY_INTERFACE, catalog, package_id
from tests.bench.parts.requests import FORM, client_form
from tests.bench.plot import plot
from tests.bench.report import Found, Limit, Section, against, failure, number, shared, within
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, Process, costs, running

CONNECTIONS = 16
AMOUNT = 2 << 30  # bytes that a figure is taken from
MOST = 1000  # answers
WRITES = 10
SLOW = 20  # readers
SMALL, LARGE = 1000, 10_000  # packages, from which there are budgets
MEMORY = 400  # MiB that a process may take
STALLED = 10  # MiB that they may cost together
LABELS = {
    "unchanged": "ours, unchanged",
    "first after a write": "ours, after a write",
    "304": "ours, known (304)",
    "gzip": "ours, gzip",
    "nginx": "nginx",
    "nginx, sendfile": "nginx, sendfile",
}


@dataclass(frozen=True)
class Row:
    """One catalog: its bytes, milliseconds of processor time by what was asked and by process, MiB at the most."""

    packages: int
    logos: bool
    size: int
    cold: float
    costs: Mapping[str, Mapping[str, float]]
    wall: float
    memory: Mapping[str, float]
    stalled: float

    @property
    def title(self) -> str:
        return f"{self.packages:,}{'' if self.logos else ' without logos'}"

    def whole(self, name: str) -> float:
        return sum(self.costs[name].values()) if name in self.costs else 0.0


async def measure(run: Run) -> Found:
    """Measure each catalog, with services that have seen none before; `plot` of the costs is among what is found."""
    sizes = [(packages, True) for packages in run.scale.catalogs] + [(run.scale.catalogs[-1], False)]
    found, rows = Found(), []
    for packages, logos in sizes:
        try:
            async with running(run.stores) as bench, asyncio.timeout(900):
                rows.append(await _measured(run, bench, packages, logos=logos))
        except Exception as error:  # noqa: BLE001  the other sizes are worth knowing all the same
            found.failures.append(failure(f"catalogs, {packages:,} packages", error))
    for row in rows:
        _judge(found, row)
    names = ("unchanged", "gzip", "304", "first after a write", "nginx", "nginx, sendfile")
    columns = (
        "packages",
        "MB",
        "cold, s",
        *names,
        "… wall",
        "gateway, MiB",
        "catalog_service, MiB",
        f"{SLOW} stalled, MiB",
    )
    cells = [
        (
            row.title,
            number(row.size / 1e6),
            f"{row.cold:.1f}",
            *(number(row.whole(name)) if name in row.costs else "" for name in names),
            f"{row.wall:.0f}",
            *(f"{row.memory[name]:.0f}" for name in ("gateway", "catalog_service")),
            f"{row.stalled:.0f}",
        )
        for row in rows
    ]
    text = f"""Milliseconds of processor time an answer, all services together, through the gateway, on
{CONNECTIONS} connections. `first after a write` is all of the answer after one package was changed through
the interface, without the change; `… wall` is how long its caller waited at best. Memory is the most that a
process ever held; `stalled` what all grew by while {SLOW} callers asked and read nothing. Catalogs of up to
{BY_INTERFACE:,} packages are made through the interface, larger ones written to the database as the stores
do: through the interface that would take longer than all that is measured."""
    picture = "![What an answer costs against the size of the catalog](catalog.svg)"
    found.sections.append(Section("Catalogs", text, columns, cells, picture if len(rows) > 1 else ""))
    if len(rows) > 1:
        found.plot = _plotted(rows)
    return found


async def _measured(run: Run, bench: Bench, packages: int, *, logos: bool) -> Row:
    account = await catalog(run, bench, packages, logos=logos)
    form = await client_form(bench, account, f"catalogs-{packages}")
    call = Call("POST", f"{account.base_url}/get_packages", (FORM,), form)
    began = time.perf_counter()
    first = await ask(call)
    cold = time.perf_counter() - began
    stalled = await _stalled(bench, call)  # before there is memory that was used once and is free again
    found: dict[str, Mapping[str, float]] = {"unchanged": await _cost(bench, call, first.size)}
    if tag := first.headers.get("etag"):
        known = Call("POST", call.url, (FORM, ("If-None-Match", tag)), form)
        found["304"] = await _cost(bench, known, 0, status=304)
    if nginx := run.beside.nginx:
        nginx.serve(first.size)
        for name, kind in (("nginx", "plain"), ("nginx, sendfile", "sendfile")):
            there = {"nginx": nginx.process}
            found[name] = await _cost(there, Call("GET", f"{nginx.addresses[kind]}/catalog"), first.size)
    found["first after a write"], wall = await _first(bench, account, call, 2 if first.size > AMOUNT // 8 else WRITES)
    memory = {name: process.largest_memory / MIB for name, process in bench.processes.items()}
    packed = Call("POST", call.url, (FORM, ("Accept-Encoding", "gzip")), form)
    found["gzip"] = await _cost(bench, packed, first.size)
    return Row(packages, logos, first.size, cold, found, wall, memory, stalled)


async def _cost(on: Bench | Mapping[str, Process], call: Call, size: int, *, status: int = 200) -> Mapping[str, float]:
    """Milliseconds of processor time for one answer, by process."""
    processes = on.processes if isinstance(on, Bench) else on
    times = max(4, min(MOST, AMOUNT // max(size, 1)))
    await send([call], max(1, times // 20), connections=CONNECTIONS, status=status)
    spent, _ = await costs(processes, send([call], times, connections=CONNECTIONS, status=status))
    return {name: cost / times * 1000 for name, cost in spent.items()}


async def _first(bench: Bench, account: Account, call: Call, writes: int) -> tuple[Mapping[str, float], float]:
    """Processor time by process, and the shortest waiting, in milliseconds, for an answer with a write before it."""
    whole, walls = dict.fromkeys(bench.processes, 0.0), []
    for change in range(writes):
        url = f"{account.base_url}/edit_package/{package_id(change)}"
        headers = dict([account.bearer])
        async with bench.session.patch(url, data={"package_name": f"New {change}"}, headers=headers):
            pass
        began = time.perf_counter()
        spent, _ = await costs(bench.processes, ask(call))
        walls.append(time.perf_counter() - began)
        whole = {name: whole[name] + cost / writes * 1000 for name, cost in spent.items()}
    return whole, min(walls) * 1000


async def _stalled(bench: Bench, call: Call) -> float:
    """MiB that all services grow by while callers have asked for the catalog and read nothing."""
    raw, before = call.encoded(), sum(process.memory for process in bench.processes.values())
    largest = 0
    async with connected(call.url, SLOW) as connections:
        for connection in connections:
            connection.stall()
        asked = [asyncio.ensure_future(connection.ask(raw)) for connection in connections]
        for _ in range(20):
            await asyncio.sleep(0.1)
            largest = max(largest, sum(process.memory for process in bench.processes.values()) - before)
    await asyncio.gather(*asked, return_exceptions=True)  # They broke off.
    return largest / MIB


def _judge(found: Found, row: Row) -> None:
    """The lines of the table that a catalog has."""
    unchanged, small = row.costs["unchanged"], row.packages < LARGE
    for name in ("nginx", "nginx, sendfile"):
        limit = Limit(f"{name}, the same bytes", row.whole(name)) if name in row.costs else None
        title = f"`get_packages`, {row.title}, {number(row.size / 1e6)} MB"
        most = None if row.packages < SMALL else 1.2 if small else 1.3
        found.lines.append(
            against(title if name == "nginx" else "… beside its `sendfile`", unchanged, "ms", limit, most)
        )
    more = {name: max(0.0, cost - unchanged[name]) for name, cost in row.costs["first after a write"].items()}
    title = f"… first answer after a write, {row.title}, beyond an unchanged one"
    found.lines.append(within(title, sum(more.values()), "ms", 30, cost=shared(more, "ms")))
    if not small:
        found.lines.append(within("… largest process", max(row.memory.values()), "MiB", MEMORY))
        found.lines.append(within(f"… all processes grow by, {SLOW} readers stalled", row.stalled, "MiB", STALLED))
    found.costs |= {f"catalog of {row.title}: {name}": cost for name, cost in unchanged.items()}
    found.costs[f"catalog of {row.title}: bytes"] = row.size


def _plotted(rows: Sequence[Row]) -> str:
    curves = {}
    for name, label in LABELS.items():
        points = [(row.packages, row.whole(name)) for row in rows if row.logos and row.whole(name) > 0]
        if points:
            curves[label] = points
    return plot("What an answer costs, three versions and 3 KB of logo each", "packages", "CPU, ms", curves)
