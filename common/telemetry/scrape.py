"""`/metrics`: all figures as Prometheus reads them, a line each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric

from common.telemetry.metrics import Metrics
from common.telemetry.worker_metrics import merge


@dataclass(frozen=True)
class _Found:
    """Figures that are there, as the library wants to find them."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def scraped(services: Sequence[Metrics]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler that tells the figures of these services, all of one process."""

    # A thread of its own: all others may be waiting for a disk, which is when figures are wanted.
    writer = ThreadPoolExecutor(1, "scrape")

    async def scrape(_: web.Request) -> web.Response:
        found = await asyncio.gather(*(metrics.collect() for metrics in services))
        # Of many tenants there are many lines: others have their turn meanwhile.
        text = await asyncio.get_running_loop().run_in_executor(writer, lambda: generate_latest(_Found(merge(found))))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return scrape
