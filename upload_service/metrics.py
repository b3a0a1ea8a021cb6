"""The metrics of upload_service."""

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
        """The number of files that are not announced, and the age of the oldest in seconds, 0 without one."""

    async def usage(self) -> list[tuple[str, int, int]]:
        """Each tenant's id, and the bytes it has used and reserved."""


class TransferMetrics:
    """Counts the bytes that were received and sent, and the uploads that were completed."""

    def __init__(self, metrics: Metrics) -> None:
        self._received = metrics.counter("pkgrepo_upload_bytes_total", "Bytes of uploads' bodies that came.")
        self._sent = metrics.counter("pkgrepo_download_bytes_total", "Bytes of downloads that were sent.")
        self._finished = metrics.counter("pkgrepo_uploads_finished_total", "Uploads that became whole.")

    @contextmanager
    def upload(self, bytes_received: Callable[[], int]) -> Iterator[None]:
        """Count the bytes received at the end of the block, also if it fails."""
        try:
            yield
        finally:
            self._received.inc(bytes_received())

    @contextmanager
    def download(self, bytes_sent: Callable[[], int]) -> Iterator[None]:
        """Count the bytes sent at the end of the block, also if it fails."""
        try:
            yield
        finally:
            self._sent.inc(bytes_sent())

    def finished(self) -> None:
        self._finished.inc()


def register_metrics(metrics: Metrics, store: MetricsStore, installers: Path) -> None:
    """Add the metrics that are read from the database, and the free space on the disk."""

    async def records() -> Sequence[Metric]:
        open_transfers, damaged, (waiting, lag) = await asyncio.gather(
            store.open_transfers(), store.damaged(), store.unannounced()
        )
        return [
            GaugeMetricFamily("pkgrepo_open_transfers", "Uploads that are not whole yet.", open_transfers),
            GaugeMetricFamily("pkgrepo_damaged_installers", "Stored files that are not what was uploaded.", damaged),
            GaugeMetricFamily("pkgrepo_outbox_waiting", "Whole uploads that are not announced.", waiting),
            GaugeMetricFamily("pkgrepo_outbox_lag_seconds", "The age of the oldest of them; 0 without one.", lag),
        ]

    async def usage() -> Sequence[Metric]:
        rows = await store.usage()
        used = [(tenant_id, used) for tenant_id, used, _ in rows]
        reserved = [(tenant_id, reserved) for tenant_id, _, reserved in rows]
        return [
            gauges("pkgrepo_storage_used_bytes", "Bytes of installers that belong to a version.", used),
            gauges("pkgrepo_storage_reserved_bytes", "Bytes of installers that belong to none yet.", reserved),
        ]

    async def room() -> Sequence[Metric]:
        disk = await asyncio.to_thread(shutil.disk_usage, installers)
        return [
            GaugeMetricFamily("pkgrepo_installers_free_bytes", "Bytes free where installers' folder is.", disk.free),
            GaugeMetricFamily("pkgrepo_installers_size_bytes", "All bytes that there are, free or not.", disk.total),
        ]

    metrics.add_source("records", records)
    metrics.add_source("usage", usage)
    metrics.add_source("room", room)
