"""Merges the metrics of all workers of a service, so that each worker can answer a scrape.

Each worker writes its metrics to a file in a shared folder, every few seconds and at each scrape. A worker that
replaces another starts from that one's counters, so a counter never goes back.

`prometheus_client.multiprocess` does not fit: it ignores collectors and gauges with a function, and it must be
configured before the library is imported.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import orjson
from prometheus_client.core import Metric

from common.concurrency.background import repeating

PAUSE = 2.0  # seconds
CUMULATIVE = frozenset({"counter", "histogram"})
Labels = Sequence[tuple[str, str]]
# Of these the maximum of all workers is reported; of all other metrics the sum.
MAXIMUM = frozenset({"pkgrepo_event_loop_lag_seconds", "pkgrepo_build_info"})


class SharedMetrics:
    """The metrics of all workers of a service; this process is number `worker`."""

    def __init__(self, folder: Path, service: str, worker: int) -> None:
        self._pattern = f"{service}-*.json"
        self._own_file = folder / f"{service}-{worker}.json"
        # One thread keeps the order of the writes.
        self._thread = ThreadPoolExecutor(1, "figures")
        self._predecessor = [metric for metric in _read(self._own_file) if metric.type in CUMULATIVE]

    async def publish(self, local: Sequence[Metric]) -> list[Metric]:
        """Write this worker's metrics, and return those of all workers."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._exchange, local)

    @asynccontextmanager
    async def publishing(self, collect: Callable[[], Sequence[Metric]]) -> AsyncIterator[None]:
        """Write the collected metrics regularly within the block, and once at its end."""

        async def publish_local() -> None:
            await self.publish(collect())

        async with repeating("figures", publish_local, partial(asyncio.sleep, PAUSE)):
            yield
        await publish_local()

    def _exchange(self, local: Sequence[Metric]) -> list[Metric]:
        own = merge([local, self._predecessor])
        new_file = self._own_file.with_suffix(".new")
        new_file.write_bytes(orjson.dumps([*map(_fields, own)]))
        new_file.replace(self._own_file)
        others = (path for path in sorted(self._own_file.parent.glob(self._pattern)) if path != self._own_file)
        return merge([own, *map(_read, others)])


def merge(groups: Iterable[Sequence[Metric]]) -> list[Metric]:
    """Merge the metrics of several workers or services: each name once, each combination of labels once."""
    merged: dict[str, tuple[Metric, dict[tuple[str, Labels], float]]] = {}
    for metric in chain.from_iterable(groups):
        values = merged.setdefault(metric.name, (metric, {}))[1]
        for sample in metric.samples:
            key = sample.name, tuple(sample.labels.items())
            before = values.get(key, 0)
            values[key] = max(before, sample.value) if metric.name in MAXIMUM else before + sample.value
    return [
        _metric(metric.name, metric.documentation, metric.type, [(*key, value) for key, value in values.items()])
        for metric, values in merged.values()
    ]


def _metric(name: str, documentation: str, kind: str, samples: Iterable[tuple[str, Labels, float]]) -> Metric:
    metric = Metric(name, documentation, kind)
    for sample, labels, value in samples:
        metric.add_sample(sample, dict(labels), value)
    return metric


def _fields(metric: Metric) -> tuple[object, ...]:
    """The arguments of `_metric` that make a copy of the metric."""
    samples = [(sample.name, [*sample.labels.items()], sample.value) for sample in metric.samples]
    return metric.name, metric.documentation, metric.type, samples


def _read(path: Path) -> list[Metric]:
    """The metrics of a worker; none if it has not written any yet."""
    try:
        return [_metric(*fields) for fields in orjson.loads(path.read_bytes())]
    except FileNotFoundError:
        return []
