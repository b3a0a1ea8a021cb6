"""Runs the long form of every fault, and writes a table of the results.

python -m tests.support.faults.torture [--minutes N] [--kills N]

The table goes to the terminal and, with the versions of all parts, to tests/support/faults/RESULTS.md.
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
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import aio_pika
from rich.console import Console
from rich.table import Table

from tests.support.faults import processes, stores
from tests.support.faults.package_deletion import kill_during_deletion
from tests.support.faults.results import Outcome
from tests.support.faults.retention import kill_during_retention
from tests.support.faults.tenant_scenario import kill_during_requests
from tests.support.processes.cluster import SHORT_PAUSES, Cluster, run_cluster
from tests.support.processes.fork_server import ROOT
from tests.support.servers.stores import private_stores

RESULTS = Path(__file__).parent / "RESULTS.md"
SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")
KILLED_AT_STEPS = ("upload_service", "catalog_service")
COLUMNS = ("Fault", "Times", "Lost", "Duplicated", "Violations", "Seconds to recover, median / max")
LIBRARIES = ("aiohttp", "aio-pika", "motor", "pymongo", "redis")

Fault = Callable[[Cluster], Awaitable[Outcome]]


def faults(minutes: float, kills: int) -> Iterator[tuple[str, Fault]]:
    """All faults in order, each with its name for the report of an exception."""
    few = max(1, kills // 4)
    for service in SERVICES:
        yield f"kill -9 of {service}", partial(processes.kill_services, services=[service], times=kills)
    for service in KILLED_AT_STEPS:
        for retries in (True, False):
            yield f"{service} killed at each step", partial(kill_during_requests, service=service, retries=retries)
        yield f"{service} killed during a package's deletion", partial(kill_during_deletion, service=service)
    yield "catalog_service killed during retention", kill_during_retention
    both = ["gateway", "upload_service"]
    yield "rolling restart", partial(processes.rolling_restart, services=both, times=3)
    yield "mongod killed", partial(stores.kill_mongod, times=few, seconds=15)
    yield "redis killed", partial(stores.kill_redis, times=few, seconds=5)
    yield "rabbitmq away", partial(stores.stop_broker, seconds=30)
    yield "rabbitmq full", partial(stores.fill_broker_disk, seconds=30)
    yield "queue deleted", partial(stores.delete_queue, times=few)
    yield "events published twice", partial(stores.publish_events_twice, times=few)
    yield "mixed load", partial(processes.mixed_faults, seconds=minutes * 60, seed=int(time.time()))


async def torture(minutes: float, kills: int, console: Console) -> tuple[list[Outcome], list[str]]:
    """Run all faults. Returns their outcomes, and the versions of all parts."""
    outcomes = []
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with (
            private_stores(Path(folder)) as own_stores,
            run_cluster(own_stores, patches=SHORT_PAUSES, upload_service=2, gateway=2) as cluster,
        ):
            versions = await _versions(cluster)
            for name, fault in faults(minutes, kills):
                began = time.monotonic()
                try:
                    outcome = await fault(cluster)
                except Exception as error:  # noqa: BLE001  the other faults still run
                    outcome = Outcome(name, violations=[f"it did not finish: {error!r}"])
                outcomes.append(outcome)
                await cluster.restart_exited()
                console.print(f"{time.monotonic() - began:6.0f} s  {outcome.fault}")
                if not outcome.succeeded:
                    console.print(str(outcome), style="red", markup=False)
    return outcomes, versions


async def _versions(on: Cluster) -> list[str]:
    mongod = await on.mongo.server_info()
    async with await aio_pika.connect(on.stores.rabbitmq_url) as connection:
        assert connection.transport is not None
        broker = connection.transport.connection.server_properties["version"]
    redis = await asyncio.to_thread(_output_of, "redis-server", "--version")
    commit = await asyncio.to_thread(_output_of, "git", "rev-parse", "--short", "HEAD")
    return [
        f"pkgrepo {version('pkgrepo')} at {commit}",
        f"Python {platform.python_version()}",
        f"MongoDB {mongod['version']}",
        f"Redis {redis.partition('v=')[2].partition(' ')[0]}",
        f"RabbitMQ {broker.decode() if isinstance(broker, bytes) else broker}",
        *(f"{name} {version(name)}" for name in LIBRARIES),
        platform.system(),
    ]


def _output_of(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def table_of(outcomes: list[Outcome]) -> Table:
    table = Table(*COLUMNS)
    for outcome in outcomes:
        table.add_row(*outcome.row(), style="" if outcome.succeeded else "red")
    return table


def report(command: str, outcomes: list[Outcome], versions: list[str], seconds: float) -> str:
    """The text of RESULTS.md."""
    lines = [
        "# Results of the last torture run",
        "",
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.0f} minutes. {', '.join(versions)}.",
        "",
        "Two gateways, two upload services, one of each other service, and real stores, all on one machine with",
        f"{len(os.sched_getaffinity(0))} processors. Lost: acknowledged and missing afterwards. Duplicated: took",
        "effect twice. Violations: of the invariants, or of a promise during the fault.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
        *(f"| {' | '.join(outcome.row())} |" for outcome in outcomes),
        "",
    ]
    failed = [str(outcome) for outcome in outcomes if not outcome.succeeded]
    return "\n".join([*lines, *(["```", *failed, "```", ""] if failed else [])])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=20, help="duration of the mixed load")
    arguments.add_argument("--kills", type=int, default=20, help="kills of each service")
    options = arguments.parse_args()
    console, began = Console(), time.monotonic()
    outcomes, versions = asyncio.run(torture(options.minutes, options.kills, console))
    console.print(table_of(outcomes))
    command = f"python -m tests.support.faults.torture --minutes {options.minutes:g} --kills {options.kills}"
    RESULTS.write_text(report(command, outcomes, versions, time.monotonic() - began), encoding="utf-8")
    return 0 if all(outcome.succeeded for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
