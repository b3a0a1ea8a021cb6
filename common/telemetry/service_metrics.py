"""The measurements of each service: its requests, its process (Linux only), and the delay of the event loop."""

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from math import inf

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

TICK = 0.5  # seconds
WINDOW = 60.0  # seconds: a scrape at this interval misses no delay
NAMES = frozenset({"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds", "process_max_fds"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds
BROKEN_OFF = "broken_off"  # the status of a request without a complete response
OTHER = "other"
_TEMPLATE = "/{tenant_id}/"


class RequestMetrics:
    """The requests of one service. `in_progress` counts those that are being answered.

    Only the event loop's thread changes the numbers, so they need no locks: the library's cost more than the counting.
    """

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        self.in_progress = 0
        self._service = service
        self._answered: dict[tuple[str, str, int | str], int] = {}
        # For each method and route: the number of requests in each bucket and beyond the last, and their seconds.
        self._seconds: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
        registry.register(self)

    def observe(self, method: str, route: str, status: int | str, seconds: float) -> None:
        """Count one request. Only routes with a tenant are labels; all else is one route, `other`."""
        if not route.startswith(_TEMPLATE):
            route = OTHER
        key = (method, route, status)
        self._answered[key] = self._answered.get(key, 0) + 1
        times = self._seconds.get((method, route))
        if times is None:
            times = self._seconds[method, route] = [0] * (len(BUCKETS) + 1), [0.0]
        times[0][bisect_left(BUCKETS, seconds)] += 1
        times[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        labels = ("service", "method", "route")
        answered = CounterMetricFamily("pkgrepo_requests", "Requests answered.", labels=(*labels, "status"))
        for (method, route, status), number in self._answered.items():
            answered.add_metric((self._service, method, route, str(status)), number)
        yield answered
        text = "Seconds until a request was answered."
        histogram = HistogramMetricFamily("pkgrepo_request_seconds", text, labels=labels)
        for (method, route), (numbers, (seconds,)) in self._seconds.items():
            bounds = map(floatToGoString, (*BUCKETS, inf))
            buckets = list(zip(bounds, map(float, accumulate(numbers)), strict=True))
            histogram.add_metric((self._service, method, route), buckets, seconds)
        yield histogram
        progress = GaugeMetricFamily("pkgrepo_requests_in_progress", "Requests being answered.", labels=("service",))
        progress.add_metric((self._service,), self.in_progress)
        yield progress


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
