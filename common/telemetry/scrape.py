"""`/metrics`: all metrics in the text format of Prometheus."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric

from common.telemetry.metrics import Metrics
from common.telemetry.worker_metrics import merge


@dataclass(frozen=True)
class _Collected:
    """Metrics in the form that `generate_latest` expects."""

    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.metrics


def metrics_handler(services: Sequence[Metrics]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler that answers with the metrics of these services of one process."""

    # Its own thread: all others may wait for a disk, and then metrics matter most.
    thread = ThreadPoolExecutor(1, "scrape")

    async def scrape(_: web.Request) -> web.Response:
        collected = await asyncio.gather(*(metrics.collect() for metrics in services))
        # Many tenants make many lines, which would block the event loop.
        text = await asyncio.get_running_loop().run_in_executor(
            thread, lambda: generate_latest(_Collected(merge(collected)))
        )
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return scrape
