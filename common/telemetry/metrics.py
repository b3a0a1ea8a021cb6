"""The metrics of a service for Prometheus: counters and gauges of this process, and values read from its stores."""

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import accumulate, chain
from math import inf
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.utils import floatToGoString

from common.concurrency.background import running
from common.telemetry import log, software_version

TICK = 0.5  # seconds
WINDOW = 60.0  # seconds: a scrape at this interval misses no delay
NAMES = frozenset({"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds", "process_max_fds"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds
BROKEN_OFF = "broken_off"  # the status of a request without a complete response
OTHER = "other"
_TEMPLATE = "/{tenant_id}/"
TIMEOUT = 2.0  # seconds for a source
CACHE_LIFETIME = 15.0  # seconds


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


ReadMetrics = Callable[[], Awaitable[Sequence[Metric]]]
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one service. Counters and gauges change at once; sources are read at each scrape."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._registry = CollectorRegistry()
        self.requests = RequestMetrics(service, self._registry)
        self._registry.register(ProcessMetrics(service))
        self._lag = EventLoopLag()
        text = "How late a timer of the process was, at worst, within a minute."
        self.gauge("pkgrepo_event_loop_lag_seconds", text, self._lag.maximum, service=service)
        self._sources: list[Source] = []
        self.gauge("pkgrepo_build_info", "1, of this version.", lambda: 1, service=service, version=software_version())

    def counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)

    def gauge(self, name: str, documentation: str, value: Callable[[], float], **labels: str) -> None:
        """Add a gauge that calls `value` at each scrape."""
        gauge = Gauge(name, documentation, list(labels), registry=self._registry)
        (gauge.labels(**labels) if labels else gauge).set_function(value)

    def add_source(self, name: str, read: ReadMetrics, *, cached: bool = True) -> None:
        """Add metrics that `read` fetches. If it raises or times out, its metrics are missing from the scrape.

        Without `cached`, `read` is called at each scrape and must have its own time limit.
        """
        self._sources.append(Source(name, read, cached=cached))

    async def collect(self) -> list[Metric]:
        """The metrics of this process, and those of the sources that answered in time."""
        sources = await asyncio.gather(*(source.get() for source in self._sources))
        return [*self._registry.collect(), *chain.from_iterable(sources)]

    async def running(self, _: web.Application) -> AsyncIterator[None]:
        """Measure the event loop while the application runs."""
        async with AsyncExitStack() as stack:
            for source in self._sources:
                stack.push_async_callback(source.close)
            await stack.enter_async_context(running(self._lag.measure()))
            yield


METRICS = web.AppKey("metrics", Metrics)


def gauges(
    name: str, documentation: str, values: Iterable[tuple[str, float]], *, label: str = "tenant_id", **labels: str
) -> Metric:
    """A gauge with one value per `label`; the other labels are the same for all values."""
    family = GaugeMetricFamily(name, documentation, labels=[*labels, label])
    for label_value, value in values:
        family.add_metric([*labels.values(), label_value], value)
    return family


def merge(services: Iterable[Sequence[Metric]]) -> list[Metric]:
    """The metrics of several services: each name once, with the samples of all."""
    merged: dict[str, Metric] = {}
    for metric in chain.from_iterable(services):
        if metric.name not in merged:
            merged[metric.name] = Metric(metric.name, metric.documentation, metric.type)
        merged[metric.name].samples.extend(metric.samples)
    return [*merged.values()]


def metrics_handler(services: Sequence[Metrics]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler of `/metrics`: all metrics of these services of one process, in the text format of Prometheus."""
    # Its own thread: all others may wait for a disk, and then metrics matter most.
    thread = ThreadPoolExecutor(1, "scrape")

    async def scrape(_: web.Request) -> web.Response:
        collected = await asyncio.gather(*(metrics.collect() for metrics in services))
        registry: Any = SimpleNamespace(collect=lambda: merge(collected))
        # Many tenants make many lines, which would block the event loop.
        text = await asyncio.get_running_loop().run_in_executor(thread, generate_latest, registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return scrape


class Source:
    """Metrics that are read once for concurrent scrapes, and cached for a while if `cached`."""

    def __init__(self, name: str, read: ReadMetrics, *, cached: bool) -> None:
        self._name = name
        self._read = read
        self._cached = cached
        self._metrics: Sequence[Metric] = ()
        self._fresh_until = 0.0
        self._task: asyncio.Task[None] | None = None

    async def get(self) -> Sequence[Metric]:
        """The metrics; none if the source fails or takes too long."""
        if time.monotonic() < self._fresh_until:
            return self._metrics
        if self._task is None:
            self._metrics = ()
            self._task = asyncio.create_task(self._refresh())
        await asyncio.wait({self._task}, timeout=TIMEOUT if self._cached else None)
        return self._metrics

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _refresh(self) -> None:
        try:
            self._metrics = await self._read()
            self._fresh_until = time.monotonic() + (CACHE_LIFETIME if self._cached else 0)
        except Exception as error:  # noqa: BLE001  a failed source must not fail the scrape
            log.warning("figures_missing", figures=self._name, error=type(error).__name__)
        finally:
            self._task = None
