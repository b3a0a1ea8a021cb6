"""What upload_service tells of itself in figures."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from common.telemetry.metrics import Metrics, gauges


class MetricsStore(Protocol):
    """The records and quotas of all tenants."""

    async def open_transfers(self) -> int: ...

    async def damaged(self) -> int: ...

    async def unannounced(self) -> tuple[int, float]:
        """How many files nobody has heard of, and the age of the oldest in seconds."""

    async def usage(self) -> list[tuple[str, int, int]]:
        """The bytes that each tenant has used and reserved."""


class TransferMetrics:
    """Counts the bytes that callers sent and were sent, and the uploads that became whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._up = metrics.counter("pkgrepo_upload_bytes_total", "Bytes of uploads' bodies that came.")
        self._down = metrics.counter("pkgrepo_download_bytes_total", "Bytes of downloads that were sent.")
        self._finished = metrics.counter("pkgrepo_uploads_finished_total", "Uploads that became whole.")

    @contextmanager
    def upload(self, so_far: Callable[[], int]) -> Iterator[None]:
        """Count what came by the end of the block, whatever its end is."""
        try:
            yield
        finally:
            self._up.inc(so_far())

    @contextmanager
    def download(self, so_far: Callable[[], int]) -> Iterator[None]:
        """Count what was sent by the end of the block, whatever its end is."""
        try:
            yield
        finally:
            self._down.inc(so_far())

    def finished(self) -> None:
        self._finished.inc()


def register_metrics(metrics: Metrics, store: MetricsStore, installers: Path) -> None:
    """Tell also what the database knows, and how much room there is."""

    async def records() -> Sequence[Metric]:
        still_open, damaged, (waiting, lag) = await asyncio.gather(
            store.open_transfers(), store.damaged(), store.unannounced()
        )
        return [
            GaugeMetricFamily("pkgrepo_open_transfers", "Uploads that are not whole yet.", still_open),
            GaugeMetricFamily("pkgrepo_damaged_installers", "Stored files that are not what was uploaded.", damaged),
            GaugeMetricFamily("pkgrepo_outbox_waiting", "Whole uploads that are not announced.", waiting),
            GaugeMetricFamily("pkgrepo_outbox_lag_seconds", "The age of the oldest of them; 0 without one.", lag),
        ]

    async def usage() -> Sequence[Metric]:
        found = await store.usage()
        used = [(tenant_id, used) for tenant_id, used, _ in found]
        reserved = [(tenant_id, reserved) for tenant_id, _, reserved in found]
        return [
            gauges("pkgrepo_storage_used_bytes", "Bytes of installers that belong to a version.", used),
            gauges("pkgrepo_storage_reserved_bytes", "Bytes of installers that belong to none yet.", reserved),
        ]

    async def room() -> Sequence[Metric]:
        found = await asyncio.to_thread(shutil.disk_usage, installers)
        return [
            GaugeMetricFamily("pkgrepo_installers_free_bytes", "Bytes free where installers' folder is.", found.free),
            GaugeMetricFamily("pkgrepo_installers_size_bytes", "All bytes that there are, free or not.", found.total),
        ]

    metrics.add_source("records", records)
    metrics.add_source("usage", usage)
    metrics.add_source("room", room)
