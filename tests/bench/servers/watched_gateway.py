"""A gateway that records the lateness of its event loop and its causes.

python -m tests.bench.servers.watched_gateway <file>
"""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from aiohttp import web

from common.http.server import run
from gateway.app import SERVICE
from gateway.settings import GatewaySettings

TICK = 0.005  # seconds
SCHEDULER_STATISTICS = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class Tick:
    """One tick of the loop: its lateness, and the thread's work and wait for a core since the last, in seconds."""

    moment: float
    late: float
    worked: float
    waited: float


@dataclass(frozen=True)
class Lateness:
    """The lateness of a loop in milliseconds, and the causes of its latest hundredth.

    `worked` and `waited` are shares: work of the thread, and its wait for a core. `pause` is the longest garbage
    collection in milliseconds.
    """

    p50: float
    p99: float
    largest: float
    worked: float
    waited: float
    pause: float

    @classmethod
    def between(cls, path: Path, begin: float, end: float) -> "Lateness":
        """The lateness in a period of `time.monotonic`."""
        ticks, pauses = [], [0.0]
        for line in path.read_text(encoding="ascii").splitlines():
            kind, *values = line.split()
            moment, *rest = map(float, values)
            if begin <= moment <= end and kind == "tick":
                ticks.append(Tick(moment, *rest))
            elif begin <= moment <= end:
                pauses.append(rest[0])
        late = sorted(tick.late * 1000 for tick in ticks)
        worst = sorted(ticks, key=lambda tick: tick.late)[-max(1, len(ticks) // 100) :]
        whole = sum(tick.late for tick in worst) or 1.0
        worked = sum(min(tick.worked, tick.late) for tick in worst) / whole
        waited = sum(min(tick.waited, tick.late) for tick in worst) / whole
        return cls(late[len(late) // 2], late[len(late) * 99 // 100], late[-1], worked, waited, max(pauses) * 1000)


def main(path: Path) -> None:
    def create_app(settings: GatewaySettings) -> web.Application:
        app = SERVICE.create_app(settings)
        app.cleanup_ctx.append(lambda _: _record(path))
        return app

    run(replace(SERVICE, create_app=create_app))


async def _record(path: Path) -> AsyncIterator[None]:
    with path.open("w", encoding="ascii", buffering=1) as file:
        began = 0.0

        def collected(phase: str, _: dict[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = time.monotonic()
            else:
                file.write(f"pause {began} {time.monotonic() - began}\n")

        gc.callbacks.append(collected)
        ticking = asyncio.ensure_future(_record_ticks(file))
        yield
        gc.callbacks.remove(collected)
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking


async def _record_ticks(file: TextIO) -> None:
    while True:
        began, worked, waited = time.monotonic(), time.thread_time(), _waited()
        await asyncio.sleep(TICK)
        now = time.monotonic()
        late, worked, waited = max(0.0, now - began - TICK), time.thread_time() - worked, _waited() - waited
        file.write(f"tick {now} {late} {worked} {waited}\n")


def _waited() -> float:
    """The seconds that this thread has waited for a core."""
    return int(SCHEDULER_STATISTICS.read_text(encoding="ascii").split()[1]) / 1e9


if __name__ == "__main__":
    main(Path(sys.argv[1]))
