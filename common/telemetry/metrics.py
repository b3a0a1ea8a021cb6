"""Figures for Prometheus: what a service counts, and what it asks its stores whenever it is asked for them."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric

from common.telemetry.logs import log
from common.telemetry.process_metrics import Process
from common.telemetry.request_metrics import Requests
from common.telemetry.worker_metrics import SharedMetrics

TIMEOUT = 2.0  # seconds that a store may take for its figures
REMEMBERED = 15.0  # seconds
TICK = 0.5  # seconds
WINDOW = 60.0  # seconds of which the worst delay is told: whoever asks as often as that misses none

Ask = Callable[[], Awaitable[Sequence[Metric]]]
software_version = cache(version)  # which reads a file
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The figures of one service.

    Counters and gauges may be changed anywhere, at once; what has to be asked for is asked where figures are wanted.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.requests = Requests(service)
        self._lag = Lag(service)
        self._registry = CollectorRegistry()
        self._registry.register(self.requests)
        self._registry.register(self._lag)
        self._registry.register(Process(service))
        self._questions: list[Question] = []
        self._board: SharedMetrics | None = None
        self.gauge("pkgrepo_build_info", "1, of this version.", lambda: 1, service=service, version=_version())

    def counter(self, name: str, told: str, *labels: str) -> Counter:
        """Something that only grows, from 0 on."""
        return Counter(name, told, labels, registry=self._registry)

    def gauge(self, name: str, told: str, read: Callable[[], float], **labels: str) -> None:
        """Something that this process knows at any moment."""
        gauge = Gauge(name, told, list(labels), registry=self._registry)
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def add_source(self, name: str, ask: Ask, *, remembered: bool = True) -> None:
        """Something that has to be asked for: `ask` raises, or takes too long, where it cannot be told now.

        What is not `remembered` is asked each time, and has a limit of its own: it is waited for.
        """
        self._questions.append(Question(name, ask, remembered=remembered))

    def share(self, folder: Path, place: int) -> None:
        """Count as one of several workers, who leave what they counted in a folder; see `board`."""
        self._board = SharedMetrics(folder, self.service, place)

    async def collect(self) -> list[Metric]:
        """What this process and its fellow workers know, and what others told, of whom each answered in time."""
        answers = await asyncio.gather(*(question.answer() for question in self._questions))
        counted = self._counted()
        found = await self._board.publish(counted) if self._board else counted
        return [*found, *chain.from_iterable(answers)]

    async def running(self, _: web.Application) -> AsyncIterator[None]:
        """Do what is to be done for figures while an application runs, and leave no question behind."""
        async with AsyncExitStack() as stack:
            for question in self._questions:
                stack.push_async_callback(question.close)
            if self._board is not None:
                await stack.enter_async_context(self._board.kept(self._counted))
            await stack.enter_async_context(self._lag.watched())
            yield

    def _counted(self) -> list[Metric]:
        return list(self._registry.collect())


METRICS = web.AppKey("metrics", Metrics)


def gauges(
    name: str, told: str, values: Iterable[tuple[str, float]], *, label: str = "tenant_id", **labels: str
) -> Metric:
    """A gauge by one label, besides others that are the same for all."""
    family = GaugeMetricFamily(name, told, labels=[*labels, label])
    for value_of_label, value in values:
        family.add_metric([*labels.values(), value_of_label], value)
    return family


class Question:
    """What others are asked for: once, by however many at a time; where it is `remembered`, also for a while."""

    def __init__(self, name: str, ask: Ask, *, remembered: bool) -> None:
        self._name = name
        self._ask = ask
        self._remembered = remembered
        self._told: Sequence[Metric] = ()
        self._until = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def answer(self) -> Sequence[Metric]:
        """The figures; none where they are not to be had now."""
        if time.monotonic() < self._until:
            return self._told
        if self._asking is None:
            self._told = ()
            self._asking = asyncio.create_task(self._remember())
        await asyncio.wait({self._asking}, timeout=TIMEOUT if self._remembered else None)
        return self._told

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _remember(self) -> None:
        try:
            self._told = await self._ask()
            self._until = time.monotonic() + (REMEMBERED if self._remembered else 0)
        except Exception as error:  # noqa: BLE001  whatever it was, there is no figure
            log.warning("figures_missing", figures=self._name, error=type(error).__name__)
        finally:
            self._asking = None


class Lag:
    """How late timers of this process's event loop are: that late may all be that it does."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._late: deque[tuple[float, float]] = deque()

    def collect(self) -> Iterator[Metric]:
        told = "How late a timer of the process was, at worst, within a minute."
        worst = max((late for _, late in self._late), default=0.0)
        yield gauges("pkgrepo_event_loop_lag_seconds", told, [(self._service, worst)], label="service")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + TICK
            await asyncio.sleep(TICK)
            now = time.monotonic()
            self._late.append((now, max(0.0, now - due)))
            while self._late[0][0] < now - WINDOW:
                self._late.popleft()


def _version() -> str:
    return software_version("pkgrepo")
