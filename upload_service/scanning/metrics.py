"""The metrics of scans, of files that wait for one, and of the scanner."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from common.telemetry.metrics import Metrics
from upload_service.scanning.model import ScanFailed, Scanner, ScanState
from upload_service.scanning.store import MongoScanStore

CHECK_TIMEOUT = 1.5  # seconds; less than those of a source
RESULTS = (ScanState.CLEAN, ScanState.INFECTED, ScanState.TOO_LARGE, ScanState.FAILED)


class ScanMetrics:
    """The scans that ended."""

    def __init__(self, metrics: Metrics) -> None:
        self.scans = metrics.counter("pkgrepo_scans_total", "Scans of installers, by their result.", "state")
        for state in RESULTS:  # An increase from nothing would be none.
            self.scans.labels(state)


def register_scan_metrics(metrics: Metrics, store: MongoScanStore, scanner: Scanner) -> None:
    """Add the metrics that are read when they are scraped."""

    async def waiting() -> Sequence[Metric]:
        number, age = await store.queue.backlog()
        return [
            GaugeMetricFamily("pkgrepo_scans_waiting", "Installers that wait for a scan.", number),
            GaugeMetricFamily("pkgrepo_scan_lag_seconds", "How long the oldest of them waits; 0 without one.", age),
        ]

    async def engine() -> Sequence[Metric]:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                date = (await scanner.check()).signatures
        except (ScanFailed, TimeoutError):
            return [GaugeMetricFamily("pkgrepo_scanner_up", "1 if the scanner responds and can be used.", 0)]
        up = GaugeMetricFamily("pkgrepo_scanner_up", "1 if the scanner responds and can be used.", 1)
        if not date:
            return [up]
        age = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds()
        text = "The age of the scanner's signature database."
        return [up, GaugeMetricFamily("pkgrepo_scanner_signatures_age_seconds", text, age)]

    metrics.add_source("scans", waiting)
    metrics.add_source("scanner", engine)
