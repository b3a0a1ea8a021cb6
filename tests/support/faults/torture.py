"""Every fault for long, one after the other, and a table of what came of them: the long forms of the tests.

python -m tests.support.faults.torture [--minutes N] [--kills N]

The table goes to the terminal and, with what it was made with, to tests/support/faults/RESULTS.md.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import aio_pika
from rich.console import Console
from rich.table import Table

from tests.support.faults import deletion as faults_deletion
from tests.support.faults import processes as faults_processes
from tests.support.faults import stores as faults_stores
from tests.support.faults.results import Outcome
from tests.support.faults.steps import dead_at_every_step
from tests.support.processes.fleet import OFTEN, Fleet, fleet
from tests.support.processes.forked import ROOT
from tests.support.processes.steps import alone
from tests.support.servers.stores import private_stores

RESULTS = Path(__file__).parent / "RESULTS.md"
SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")
DYING = ("upload_service", "catalog_service")
COLUMNS = ("Fault", "Times", "Lost", "Duplicated", "Violations", "Seconds to recover, median / max")
LIBRARIES = ("aiohttp", "aio-pika", "motor", "pymongo", "redis")

Fault = Callable[[Fleet], Awaitable[Outcome]]


def faults(minutes: float, kills: int) -> Iterator[tuple[str, Fault]]:
    """What is done, in this order, with what it is called where it does not come to an end."""
    for service in SERVICES:
        yield f"kill -9 of {service}", _killed(service, kills)
    for service in DYING:
        for insisting in (True, False):
            yield f"{service} killed at each step", _steps(service, insisting=insisting)
        yield f"{service} killed while a package goes", _deletion(service)
    yield "rolling restart", lambda on: faults_processes.restarted_in_turn(on, ["gateway", "upload_service"], times=3)
    few = max(1, kills // 4)
    yield "mongod killed", lambda on: faults_stores.mongod_killed(on, times=few, seconds=15)
    yield "redis killed", lambda on: faults_stores.redis_killed(on, times=few, seconds=5)
    yield "rabbitmq away", lambda on: faults_stores.broker_away(on, seconds=30)
    yield "rabbitmq full", lambda on: faults_stores.broker_full(on, seconds=30)
    yield "queue deleted", lambda on: faults_stores.queue_deleted(on, times=few)
    yield "events published twice", lambda on: faults_stores.relay_killed(on, times=few)
    yield "everything", lambda on: faults_processes.mixed(on, seconds=minutes * 60, seed=int(time.time()))


def _killed(service: str, kills: int) -> Fault:
    return lambda on: faults_processes.killed(on, service, times=kills)


def _deletion(service: str) -> Fault:
    return lambda on: faults_deletion.deletion_killed(on, service)


def _steps(service: str, *, insisting: bool) -> Fault:
    async def every_step(on: Fleet) -> Outcome:
        async with alone(on, service) as steps:
            return await dead_at_every_step(on, steps, service, insisting=insisting)

    return every_step


async def torture(minutes: float, kills: int, console: Console) -> tuple[list[Outcome], list[str]]:
    """What came of each fault, and the versions of what it was done to."""
    outcomes = []
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with (
            private_stores(Path(folder)) as stores,
            fleet(stores, patches=OFTEN, upload_service=2, gateway=2) as running,
        ):
            versions = await _versions(running)
            for name, fault in faults(minutes, kills):
                began = time.monotonic()
                try:
                    outcome = await fault(running)
                except Exception as error:  # noqa: BLE001  the other faults are worth knowing all the same
                    outcome = Outcome(name, violations=[f"it did not come to an end: {error!r}"])
                outcomes.append(outcome)
                await running.restart_ended()
                console.print(f"{time.monotonic() - began:6.0f} s  {outcome.fault}")
                if not outcome.good:
                    console.print(str(outcome), style="red", markup=False)
    return outcomes, versions


async def _versions(on: Fleet) -> list[str]:
    mongod = await on.mongo.server_info()
    async with await aio_pika.connect(on.stores.rabbitmq_url) as connection:
        assert connection.transport is not None
        broker = connection.transport.connection.server_properties["version"]
    redis = await asyncio.to_thread(_said, "redis-server", "--version")
    commit = await asyncio.to_thread(_said, "git", "rev-parse", "--short", "HEAD")
    return [
        f"pkgrepo {version('pkgrepo')} at {commit}",
        f"Python {platform.python_version()}",
        f"MongoDB {mongod['version']}",
        f"Redis {redis.partition('v=')[2].partition(' ')[0]}",
        f"RabbitMQ {broker.decode() if isinstance(broker, bytes) else broker}",
        *(f"{name} {version(name)}" for name in LIBRARIES),
        platform.system(),
    ]


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def table_of(outcomes: list[Outcome]) -> Table:
    table = Table(*COLUMNS)
    for outcome in outcomes:
        table.add_row(*outcome.row(), style="" if outcome.good else "red")
    return table


def report(command: str, outcomes: list[Outcome], versions: list[str], seconds: float) -> str:
    """The page that keeps the last run."""
    lines = [
        "# What the last torture came to",
        "",
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.0f} minutes. {', '.join(versions)}.",
        "",
        "Two gateways, two upload services, one of each other service, and real stores, all on one machine with",
        f"{len(os.sched_getaffinity(0))} processors. Lost: acknowledged and not there any more. Duplicated: took",
        "effect twice. Violations: of the invariants, or of what is promised while the fault lasts.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
        *(f"| {' | '.join(outcome.row())} |" for outcome in outcomes),
        "",
    ]
    bad = [str(outcome) for outcome in outcomes if not outcome.good]
    return "\n".join([*lines, *(["```", *bad, "```", ""] if bad else [])])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=20, help="of everything at once")
    arguments.add_argument("--kills", type=int, default=20, help="of each service")
    given = arguments.parse_args()
    console, began = Console(), time.monotonic()
    outcomes, versions = asyncio.run(torture(given.minutes, given.kills, console))
    console.print(table_of(outcomes))
    command = f"python -m tests.support.faults.torture --minutes {given.minutes:g} --kills {given.kills}"
    RESULTS.write_text(report(command, outcomes, versions, time.monotonic() - began), encoding="utf-8")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
