"""Everything that has a budget, measured: the one table, and tests/bench/RESULTS.md of it.

python -m tests.bench [--tiny] [part …]

Without parts named all are measured and RESULTS.md is written; with some their figures only go to the terminal.
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
from rich.console import Console

from common.telemetry import configure_logs
from tests.bench import machine
from tests.bench.client_capacity import ends
from tests.bench.parts import (
    catalogs,
    concurrent_uploads,
    object_storage,
    overload,
    pages,
    requests,
    sign_in,
    tail_latency,
    transfer,
    winget,
)
from tests.bench.report import Found, failure, page, shown
from tests.bench.scale import FULL, TINY, Run, Scale
from tests.bench.servers.reference import beside
from tests.support.servers.stores import private_stores

RESULTS = Path(__file__).with_name("RESULTS.md")
LIMIT = 1800.0  # seconds for a part
WIDTH = 180  # characters
PARTS: Mapping[str, Callable[[Run], Awaitable[Found]]] = {
    "requests": requests.measure,
    "tails": tail_latency.measure,
    "transfer": transfer.measure,
    "catalogs": catalogs.measure,
    "winget": winget.measure,
    "pages": pages.measure,
    "crowd": concurrent_uploads.measure,
    "rush": overload.measure,
    "sign_in": sign_in.measure,
    "objects": object_storage.measure,
}


async def bench(scale: Scale, parts: Sequence[str], tell: Callable[[str], None]) -> Found:
    """What was found by each part, on stores and servers that are gone afterwards."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        async with private_stores(Path(name)) as stores, beside(Path(name)) as servers:
            found = await measured(Run(scale, stores, servers), parts, tell)
    if section := ends(found.costs):
        found.sections.append(section)
    return found


async def measured(run: Run, parts: Sequence[str], tell: Callable[[str], None]) -> Found:
    """What was found by each part; one that fails says so among the failures, and the others go on."""
    found = Found()
    for name in parts:
        began = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT):
                found.add(await PARTS[name](run))
        except Exception as error:  # noqa: BLE001  the other parts are worth knowing all the same
            found.failures.append(failure(name, error))
        tell(f"{time.monotonic() - began:6.0f} s  {name}")
    return found


def main() -> int:
    """0 where all parts came to their end, whatever they found."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    arguments.add_argument("--tiny", action="store_true", help="little of everything: does it work?")
    arguments.add_argument("--results", type=Path, help="write here, whatever parts are named")
    given = arguments.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        arguments.error(f"no part is named {', '.join(sorted(unknown))}")
    console, began, load = Console(width=WIDTH), time.monotonic(), machine.load()
    configure_logs("error")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work = bench(TINY if given.tiny else FULL, given.parts or list(PARTS), console.print)
        found = runner.run(_until_told(work))
    console.print(shown(found))
    results = given.results or (None if given.parts or given.tiny else RESULTS)
    if results:
        head = [
            f"`{' '.join(['python -m tests.bench', *sys.argv[1:]])}`, {machine.now()}",
            f"{(time.monotonic() - began) / 60:.0f} minutes; load {load} at the beginning, {machine.load()} at the end",
            *machine.described(),
        ]
        write(results, head, found)
    return 1 if found.failures else 0


async def _until_told(work: Coroutine[Any, Any, Found]) -> Found:
    """Let a SIGTERM end it as a SIGINT does: with everything that was started."""
    ours = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ours.cancel)
    return await ours


def write(results: Path, head: Sequence[str], found: Found) -> None:
    """Write the page, and the plot beside it; what stands below the page's marker is kept."""
    before = results.read_text(encoding="utf-8") if results.exists() else ""
    results.write_text(page(head, found, before), encoding="utf-8")
    if found.plot:
        results.with_name("catalog.svg").write_text(found.plot, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
