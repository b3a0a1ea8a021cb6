"""Metrics of the process: what the operating system reports (Linux only), and the delay of the event loop."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator

from prometheus_client import PROCESS_COLLECTOR
from prometheus_client.core import Metric

TICK = 0.5  # seconds
WINDOW = 60.0  # seconds: a scrape at this interval misses no delay
NAMES = frozenset({"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds", "process_max_fds"})


class ProcessMetrics:
    """The metrics of this process, labelled with a service; services in one process report the same values."""

    def __init__(self, service: str) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        for metric in PROCESS_COLLECTOR.collect():
            if metric.name in NAMES:
                labelled = Metric(metric.name, metric.documentation, metric.type)
                for sample in metric.samples:
                    labelled.add_sample(sample.name, {"service": self._service}, sample.value)
                yield labelled


class EventLoopLag:
    """Measures how late timers of the event loop are."""

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque()

    def maximum(self) -> float:
        """The longest delay within a minute, in seconds."""
        return max((delay for _, delay in self._delays), default=0.0)

    async def measure(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + TICK
            await asyncio.sleep(TICK)
            now = time.monotonic()
            self._delays.append((now, max(0.0, now - due)))
            while self._delays[0][0] < now - WINDOW:
                self._delays.popleft()
