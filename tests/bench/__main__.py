"""Measures everything that has a budget, and writes tests/bench/RESULTS.md.

python -m tests.bench [--tiny] [--s3 PROGRAM] [part …]

Without named parts, all parts run and RESULTS.md is written. Named parts only print their results.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from common.telemetry import configure_logs
from tests.bench import machine
from tests.bench.client_capacity import client_capacity
from tests.bench.parts import (
    catalogs,
    concurrent_uploads,
    fleet,
    fleet_tls,
    object_storage,
    overload,
    pages,
    requests,
    rings,
    sign_in,
    tail_latency,
    transfer,
    winget,
)
from tests.bench.report import PartResult, failure_text, page
from tests.bench.scale import FULL, TINY, Run, Scale
from tests.bench.servers.reference import run_reference_servers
from tests.support.servers.stores import private_stores

RESULTS = Path(__file__).with_name("RESULTS.md")
LIMIT = 1800.0  # seconds for a part
PARTS: Mapping[str, Callable[[Run], Awaitable[PartResult]]] = {
    "requests": requests.measure,
    "tails": tail_latency.measure,
    "transfer": transfer.measure,
    "catalogs": catalogs.measure,
    "winget": winget.measure,
    "rings": rings.measure,
    "fleet": fleet.measure,
    "fleet_tls": fleet_tls.measure,
    "pages": pages.measure,
    "crowd": concurrent_uploads.measure,
    "rush": overload.measure,
    "sign_in": sign_in.measure,
    "objects": object_storage.measure,
}


async def bench(scale: Scale, parts: Sequence[str], report: Callable[[str], None], s3_program: str = "") -> PartResult:
    """Run the parts on temporary stores and servers. Returns their results."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        async with private_stores(Path(name)) as stores, run_reference_servers(Path(name)) as servers:
            result = await run_parts(Run(scale, stores, servers, s3_program), parts, report)
    if section := client_capacity(result.costs):
        result.sections.append(section)
    return result


async def run_parts(run: Run, parts: Sequence[str], report: Callable[[str], None]) -> PartResult:
    """Run the parts. The exception of a part is a failure in the result, and the other parts still run."""
    result = PartResult()
    for name in parts:
        began = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT):
                result.add(await PARTS[name](run))
        except Exception as error:  # noqa: BLE001  the other parts still run
            result.failures.append(failure_text(name, error))
        report(f"{time.monotonic() - began:6.0f} s  {name}")
    return result


def main() -> int:
    """Returns 0 if all parts finished, whether or not they met their budgets."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    arguments.add_argument("--tiny", action="store_true", help="a tiny run that checks that all parts work")
    arguments.add_argument("--s3", default="", metavar="PROGRAM", help="minio or versitygw; default: moto's server")
    arguments.add_argument("--results", type=Path, help="write the results to this file")
    options = arguments.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        arguments.error(f"no part is named {', '.join(sorted(unknown))}")
    began, load = time.monotonic(), machine.load_average()
    configure_logs("error")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work = bench(TINY if options.tiny else FULL, options.parts or list(PARTS), print, options.s3)
        result = runner.run(_until_terminated(work))
    minutes = (time.monotonic() - began) / 60
    head = [
        f"`{' '.join(['python -m tests.bench', *sys.argv[1:]])}`, {machine.now()}",
        f"{minutes:.0f} minutes; load {load} at the beginning, {machine.load_average()} at the end",
        *machine.describe_run(),
    ]
    sys.stdout.write(page(head, result))
    if results := options.results or (None if options.parts or options.tiny else RESULTS):
        write(results, head, result)
    return 1 if result.failures else 0


async def _until_terminated(work: Coroutine[Any, Any, PartResult]) -> PartResult:
    """Let SIGTERM stop the run and all its processes, like SIGINT."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def write(results: Path, head: Sequence[str], result: PartResult) -> None:
    """Write the page. The text below its marker is kept."""
    before = results.read_text(encoding="utf-8") if results.exists() else ""
    results.write_text(page(head, result, before), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
