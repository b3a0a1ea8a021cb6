"""The metrics of a service for Prometheus: counters and gauges of this process, and values read from its stores."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import chain
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from common.concurrency.background import running
from common.telemetry.logs import log
from common.telemetry.service_metrics import EventLoopLag, ProcessMetrics, RequestMetrics
from common.telemetry.version import software_version

TIMEOUT = 2.0  # seconds for a source
CACHE_LIFETIME = 15.0  # seconds

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
