"""What the workers of a service have counted, together, so that any one of them can tell it.

Each leaves its figures in a folder of theirs, every few seconds and whenever it is asked. Whoever takes the place of a
worker that ended goes on from what that one had counted: a counter never goes back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import orjson
from prometheus_client.core import Metric

from common.concurrency.background import repeating

PAUSE = 2.0  # seconds
GROWING = frozenset({"counter", "histogram"})
# Where workers differ, the worst holds of these; of all other figures, the sum.
WORST = frozenset({"pkgrepo_event_loop_lag_seconds", "pkgrepo_build_info"})


class SharedMetrics:
    """The figures of all workers, of which this is the one at `place`."""

    def __init__(self, folder: Path, service: str, place: int) -> None:
        self._pattern = f"{service}-*.json"
        self._own = folder / f"{service}-{place}.json"
        # One thread: figures are left whole, and in the order in which they were counted.
        self._writer = ThreadPoolExecutor(1, "figures")
        self._before = [metric for metric in _read(self._own) if metric.type in GROWING]

    async def publish(self, counted: Sequence[Metric]) -> list[Metric]:
        """Leave what this worker counted, and see what all of them did."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._pin, counted)

    @asynccontextmanager
    async def kept(self, count: Callable[[], Sequence[Metric]]) -> AsyncIterator[None]:
        """Leave what is counted within the block, up to its end."""

        async def keep() -> None:
            await self.publish(count())

        async with repeating("figures", keep, partial(asyncio.sleep, PAUSE)):
            yield
        await self.publish(count())

    def _pin(self, counted: Sequence[Metric]) -> list[Metric]:
        own = merge([counted, self._before])
        new = self._own.with_suffix(".new")
        new.write_bytes(_written(own))
        new.replace(self._own)
        others = (path for path in sorted(self._own.parent.glob(self._pattern)) if path != self._own)
        return merge([own, *map(_read, others)])


def merge(tellings: Iterable[Sequence[Metric]]) -> list[Metric]:
    """The figures of several who tell of the same, or of other things: each name once, each of its labels once."""
    found: dict[str, tuple[Metric, dict[tuple[str, ...], float]]] = {}
    for metric in (metric for told in tellings for metric in told):
        values = found.setdefault(metric.name, (metric, {}))[1]
        for sample in metric.samples:
            key = (sample.name, *(text for label in sample.labels.items() for text in label))
            before = values.get(key, 0)
            values[key] = max(before, sample.value) if metric.name in WORST else before + sample.value
    return [_metric(metric.name, metric.documentation, metric.type, values) for metric, values in found.values()]


def _metric(name: str, told: str, kind: str, values: dict[tuple[str, ...], float]) -> Metric:
    made = Metric(name, told, kind)
    for (sample, *labels), value in values.items():
        made.add_sample(sample, dict(zip(labels[::2], labels[1::2], strict=True)), value)
    return made


def _written(metrics: Sequence[Metric]) -> bytes:
    return orjson.dumps(
        [
            (metric.name, metric.documentation, metric.type, [(s.name, s.labels, s.value) for s in metric.samples])
            for metric in metrics
        ]
    )


def _read(path: Path) -> list[Metric]:
    """What a worker left; nothing where it did not yet."""
    try:
        written = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    found = []
    for name, told, kind, samples in written:
        made = Metric(name, told, kind)
        for sample, labels, value in samples:
            made.add_sample(sample, labels, value)
        found.append(made)
    return found
