"""The measurements of each service: its requests, its process (Linux only), and the delay of the event loop."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

TICK = 0.5  # seconds
WINDOW = 60.0  # seconds: a scrape at this interval misses no delay
NAMES = frozenset({"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds", "process_max_fds"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds
BROKEN_OFF = "broken_off"  # the status of a request without a complete response
OTHER = "other"
_TEMPLATE = "/{tenant_id}/"


class RequestMetrics:
    """The requests of one service. `in_progress` counts those that are being answered."""

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        labels = ("service", "method", "route")
        self._service = service
        self._answered = Counter("pkgrepo_requests", "Requests answered.", (*labels, "status"), registry=registry)
        text = "Seconds until a request was answered."
        self._seconds = Histogram("pkgrepo_request_seconds", text, labels, buckets=BUCKETS, registry=registry)
        progress = Gauge("pkgrepo_requests_in_progress", "Requests being answered.", ("service",), registry=registry)
        self.in_progress = progress.labels(service)
        # `labels()` costs more than the counting itself.
        self._children: dict[tuple[str, str, int | str], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int | str, seconds: float) -> None:
        """Count one request. Only routes with a tenant are labels; all else is one route, `other`."""
        if not route.startswith(_TEMPLATE):
            route = OTHER
        key = (method, route, status)
        if key not in self._children:
            labels = (self._service, method, route)
            self._children[key] = (self._answered.labels(*labels, str(status)), self._seconds.labels(*labels))
        answered, histogram = self._children[key]
        answered.inc()
        histogram.observe(seconds)


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
