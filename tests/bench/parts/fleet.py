"""A fleet's `winget upgrade` runs: searches at a steady rate, with the services and their stores on two cores."""

import asyncio
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from catalog_service.model.identities import normalized
from tests.bench.callers.load import SteadyAnswers, repeat_steadily, send_steadily
from tests.bench.callers.seeding import catalog, package_id
from tests.bench.parts.winget import PROGRAMS, first_search, program, search, token_header
from tests.bench.report import Line, PartResult, Section, number
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Process, measure_costs, run_services

RATE = 1000 * PROGRAMS / 300  # searches a second: 1,000 machines within five minutes
CORES = 2  # of the services and of the stores together
CONNECTIONS = 64
ACTIVE = 33  # machines that search at the same time; winget sends one search after another, some 20 a second
COMMON, RARE = 100, 5000  # programs of every machine, and programs of which each machine has some others
PUBLISHED = 4  # One of so many programs is in the catalog.
HELLO_RATE = 20.0  # requests a second to the bare handler on the same cores
MOST = 50.0  # ms
BEHIND = 1.0  # seconds that the last answers may be behind the schedule


async def measure(run: Run) -> PartResult:
    """Send the searches of all machines, each when it is due."""
    scale, result = run.scale, PartResult()
    packages = max(size for size in scale.catalogs if size <= 10_000)
    machines, seconds = scale.fleet
    async with run_services(run.stores) as bench:
        account = await catalog(run, bench, packages)
        await first_search(account)  # It reads the catalog: the cost of a start, not of a fleet.
        headers = [await token_header(bench, account, f"fleet-{machine}") for machine in range(machines)]
        searches = list(_searches(account, packages, headers, round(RATE * seconds)))
        stores = {name: Process(_pid_of(run.stores.folder / name)) for name in ("mongodb", "redis")}
        processes = {**bench.processes, **stores}
        with _pinned([*processes.values(), run.reference.bare]):
            sending = asyncio.gather(
                measure_costs(processes, send_steadily(account.base_url, searches, RATE, connections=CONNECTIONS)),
                repeat_steadily(run.reference.hello, HELLO_RATE, seconds),
            )
            (costs, outcome), hello = await sending
    each = {name: cost / len(searches) * 1e6 for name, cost in costs.items()}
    title = f"fleet: {RATE:.0f} searches a second, p99"
    result.lines.append(_line(title, outcome, seconds, hello))
    result.costs |= {f"{title}: {name}": cost for name, cost in each.items()}
    text = f"""{machines:,} machines with client tokens send {len(searches):,} searches in {seconds:g} seconds, as
{PROGRAMS} programs of each of 1,000 machines need in five minutes; {ACTIVE} machines are active at a time. A search has
the family name, the product code and the normalised name of one program. Half of a machine's programs are the same
{COMMON} everywhere, the others are of {RARE:,}; one of {PUBLISHED} is in the catalog of {packages:,} packages. The
services, MongoDB and Redis share {CORES} cores; the callers use the others. A response time begins when the search was
due, whether or not earlier ones were answered. Microseconds of processor time are for each search."""
    cells = [f"{len(outcome.seconds) / outcome.elapsed:,.0f}", str(outcome.errors)]
    cells += [f"{outcome.percentile(percent):.1f}" for percent in (50, 99)]
    columns = ("searches a second", "errors", "p50, ms", "p99, ms", *each)
    result.sections.append(Section("A fleet", text, columns, [(*cells, *map(number, each.values()))]))
    return result


def _line(title: str, outcome: SteadyAnswers, seconds: float, hello: SteadyAnswers) -> Line:
    p99 = outcome.percentile(99)
    is_sustained = outcome.elapsed <= seconds + BEHIND
    met = p99 <= MOST and is_sustained and not outcome.errors
    rate = f"{len(outcome.seconds) / outcome.elapsed:,.0f} a second, {outcome.errors} errors"
    beside = f"bare handler meanwhile: {number(hello.percentile(99))} ms"
    return Line(title, f"{number(p99)} ms ({rate})", beside, None, f"≤ {MOST:g} ms, sustained", met)


def _searches(account: Account, packages: int, headers: Sequence[tuple[str, str]], total: int) -> Iterator[bytes]:
    """The searches of all machines in the order in which they are due."""
    each = -(-total // len(headers))
    searches = searches_of_machines(account, packages, headers, each)
    # One machine starts after another, and sends while the next ones do.
    turns = sorted(
        (machine * each + turn * ACTIVE, machine, turn) for machine in range(len(headers)) for turn in range(each)
    )
    for _, machine, turn in turns:
        yield searches[machine][turn % len(searches[machine])]


def searches_of_machines(
    account: Account, packages: int, headers: Sequence[tuple[str, str]], each: int
) -> Sequence[Sequence[bytes]]:
    """At most `each` requests of each machine: one search for each of its programs, in any order."""
    choice = random.Random(each * len(headers))  # noqa: S311  the same each time
    return [
        [
            search(account, header, Inclusions=_inclusions(installed, packages)).encoded()
            for installed in _installed(choice)[:each]
        ]
        for header in headers
    ]


def _installed(choice: random.Random) -> list[int]:
    """The programs of a machine in any order."""
    programs = [*range(COMMON), *choice.sample(range(COMMON, COMMON + RARE), PROGRAMS - COMMON)]
    return choice.sample(programs, len(programs))


def _inclusions(installed: int, packages: int) -> list[dict[str, object]]:
    name = f"The program {package_id(installed % packages)}" if installed % PUBLISHED == 0 else ""
    return program(installed, normalized(name))


@contextmanager
def _pinned(processes: Iterable[Process]) -> Iterator[None]:
    """Let the processes use the first cores only, and this process the others."""
    cores = sorted(os.sched_getaffinity(0))
    pids = [process.pid for process in processes]
    try:
        for pid in pids:
            _use_cores(pid, cores[:CORES])
        _use_cores(os.getpid(), cores[CORES:] or cores)
        yield
    finally:
        for pid in (*pids, os.getpid()):
            _use_cores(pid, cores)


def _use_cores(pid: int, cores: Sequence[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _pid_of(folder: Path) -> int:
    return int((folder / "server.pid").read_text(encoding="ascii"))
