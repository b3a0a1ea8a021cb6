"""The costs of catalogs of 100 to 100,000 packages: unchanged, known, compressed, after a write."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.callers.load import Call, open_connections, send, send_once
from tests.bench.callers.seeding import catalog, package_id
from tests.bench.parts.requests import FORM, client_form
from tests.bench.report import (
    Limit,
    PartResult,
    Section,
    absolute_line,
    cost_by_process,
    failure_text,
    number,
    ratio_line,
)
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, Process, measure_costs, run_services

CONNECTIONS = 16
AMOUNT = 2 << 30  # bytes per measurement
MOST = 1000  # answers
WRITES = 10
SLOW = 20  # readers
SITES = 20
SITES_MEMORY = 1.1  # of the largest process without sites
SMALL, LARGE = 1000, 10_000  # packages from which budgets apply
MEMORY = 400  # MiB of a process
STALLED = 10  # MiB of all stalled readers


@dataclass(frozen=True)
class Row:
    """One catalog: its size in bytes, CPU milliseconds by request and process, and peak memory in MiB."""

    packages: int
    logos: bool
    sites: int
    size: int
    cold: float
    costs: Mapping[str, Mapping[str, float]]
    wall: float
    memory: Mapping[str, float]
    stalled: float

    @property
    def title(self) -> str:
        return (
            f"{self.packages:,}{'' if self.logos else ' without logos'}{f', {self.sites} sites' if self.sites else ''}"
        )

    def whole(self, name: str) -> float:
        return sum(self.costs[name].values()) if name in self.costs else 0.0


async def measure(run: Run) -> PartResult:
    """Measure each catalog with newly started services."""
    largest = run.scale.catalogs[-1]
    sizes = [*((packages, True, 0) for packages in run.scale.catalogs), (largest, True, SITES), (largest, False, 0)]
    result, rows = PartResult(), []
    for packages, logos, sites in sizes:
        try:
            async with run_services(run.stores) as bench, asyncio.timeout(900):
                rows.append(await _measure_row(run, bench, packages, logos=logos, sites=sites))
        except Exception as error:  # noqa: BLE001  the other sizes are still measured
            result.failures.append(failure_text(f"catalogs, {packages:,} packages", error))
    for row in rows:
        same = (each for each in rows if (each.packages, each.logos) == (row.packages, row.logos))
        _add_lines(result, row, next(same) if row.sites else None)
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
the interface, without the change. The gateway forwards catalogs above 8 MiB then, and keeps them at the
second request. `… wall` is how long its caller waited at best. Memory is the most that a
process ever held; `stalled` what all grew by while {SLOW} callers asked and read nothing. Catalogs are
written to the database as the stores do. With sites, the callers of `unchanged`, `304` and `gzip` are at all sites in
turn, which share one catalog."""
    result.sections.append(Section("Catalogs", text, columns, cells))
    return result


async def _measure_row(run: Run, bench: Bench, packages: int, *, logos: bool, sites: int) -> Row:
    account = await catalog(run, bench, packages, logos=logos)
    hosts = [f"127.0.{site}.1" for site in range(max(1, sites))]
    await _set_sites(bench, account, hosts if sites else ())
    form = await client_form(bench, account, f"catalogs-{packages}-{sites}")
    call = Call("POST", f"{account.base_url}/get_packages", (FORM,), form)
    began = time.perf_counter()
    first = await send_once(call)
    cold = time.perf_counter() - began
    stalled = await _stalled_memory(bench, call)  # first, before the processes have free memory to reuse
    result: dict[str, Mapping[str, float]] = {"unchanged": await _cost(bench, call, first.size, hosts=hosts)}
    if tag := first.headers.get("etag"):
        known = Call("POST", call.url, (FORM, ("If-None-Match", tag)), form)
        result["304"] = await _cost(bench, known, 0, status=304, hosts=hosts)
    if nginx := run.reference.nginx:
        nginx.serve(first.size)
        for name, kind in (("nginx", "plain"), ("nginx, sendfile", "sendfile")):
            process = {"nginx": nginx.process}
            result[name] = await _cost(process, Call("GET", f"{nginx.addresses[kind]}/catalog"), first.size)
    result["first after a write"], wall = await _first_after_write(
        bench, account, call, 2 if first.size > AMOUNT // 8 else WRITES
    )
    memory = {name: process.largest_memory / MIB for name, process in bench.processes.items()}
    packed = Call("POST", call.url, (FORM, ("Accept-Encoding", "gzip")), form)
    result["gzip"] = await _cost(bench, packed, first.size, hosts=hosts)
    return Row(packages, logos, sites, first.size, cold, result, wall, memory, stalled)


async def _set_sites(bench: Bench, account: Account, hosts: Sequence[str]) -> None:
    """Set a site for each of the callers' addresses."""
    sites = [{"name": host, "networks": [host], "downloads": f"https://{host}.example.com"} for host in hosts]
    form, headers = {"sites": json.dumps(sites)}, dict([account.bearer])
    async with bench.session.patch(f"{account.base_url}/edit_settings", data=form, headers=headers) as answer:
        answer.raise_for_status()


async def _cost(
    on: Bench | Mapping[str, Process],
    call: Call,
    size: int,
    *,
    status: int = 200,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> Mapping[str, float]:
    """The CPU milliseconds of one answer to callers at these addresses, by process."""
    processes = on.processes if isinstance(on, Bench) else on
    times = max(4, len(hosts), min(MOST, AMOUNT // max(size, 1)))
    connections = max(CONNECTIONS, len(hosts))
    await send([call], max(1, times // 20), connections=connections, status=status, hosts=hosts)
    sending = send([call], times, connections=connections, status=status, hosts=hosts)
    spent, _ = await measure_costs(processes, sending)
    return {name: cost / times * 1000 for name, cost in spent.items()}


async def _first_after_write(
    bench: Bench, account: Account, call: Call, writes: int
) -> tuple[Mapping[str, float], float]:
    """The CPU time by process and the shortest response time after a write, in milliseconds."""
    whole, walls = dict.fromkeys(bench.processes, 0.0), []
    for change in range(writes):
        url = f"{account.base_url}/edit_package/{package_id(change)}"
        headers = dict([account.bearer])
        async with bench.session.patch(url, data={"package_name": f"New {change}"}, headers=headers):
            pass
        began = time.perf_counter()
        spent, _ = await measure_costs(bench.processes, send_once(call))
        walls.append(time.perf_counter() - began)
        whole = {name: whole[name] + cost / writes * 1000 for name, cost in spent.items()}
    return whole, min(walls) * 1000


async def _stalled_memory(bench: Bench, call: Call) -> float:
    """The memory growth of all services in MiB while callers do not read their answers."""
    raw, before = call.encoded(), sum(process.memory for process in bench.processes.values())
    largest = 0
    async with open_connections(call.url, SLOW) as connections:
        for connection in connections:
            connection.stall()
        answers = [asyncio.ensure_future(connection.send(raw)) for connection in connections]
        for _ in range(20):
            await asyncio.sleep(0.1)
            largest = max(largest, sum(process.memory for process in bench.processes.values()) - before)
    await asyncio.gather(*answers, return_exceptions=True)  # The connections were closed.
    return largest / MIB


def _add_lines(result: PartResult, row: Row, without_sites: Row | None) -> None:
    """Add the lines of a catalog to the table; for one with sites, beside the same without."""
    unchanged, small = row.costs["unchanged"], row.packages < LARGE
    for name in ("nginx", "nginx, sendfile"):
        limit = Limit(f"{name}, the same bytes", row.whole(name)) if name in row.costs else None
        title = f"`get_packages`, {row.title}, {number(row.size / 1e6)} MB"
        most = None if row.packages < SMALL else 1.2 if small else 1.3
        result.lines.append(
            ratio_line(title if name == "nginx" else "… beside its `sendfile`", unchanged, "ms", limit, most)
        )
    more = {name: max(0.0, cost - unchanged[name]) for name, cost in row.costs["first after a write"].items()}
    title = f"… first answer after a write, {row.title}, beyond an unchanged one"
    result.lines.append(absolute_line(title, sum(more.values()), "ms", 30, cost=cost_by_process(more, "ms")))
    if not small:
        most = round(max(without_sites.memory.values()) * SITES_MEMORY) if without_sites else MEMORY
        result.lines.append(absolute_line("… largest process", max(row.memory.values()), "MiB", most))
        result.lines.append(
            absolute_line(f"… all processes grow by, {SLOW} readers stalled", row.stalled, "MiB", STALLED)
        )
    result.costs |= {f"catalog of {row.title}: {name}": cost for name, cost in unchanged.items()}
    result.costs[f"catalog of {row.title}: bytes"] = row.size
