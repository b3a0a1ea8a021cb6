"""The metrics of scans, of files that wait for one, and of the scanner."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from pymongo import ASCENDING

from common.mongo import MongoDatabase
from common.telemetry.metrics import Metrics
from upload_service.scanning.model import ScanFailed, Scanner, ScanState
from upload_service.store import NOW, WAITING_FOR_SCAN

CHECK_TIMEOUT = 1.5  # seconds; less than those of a source
SCAN_RESULTS = (ScanState.CLEAN, ScanState.INFECTED, ScanState.TOO_LARGE, ScanState.FAILED)


class ScanMetrics:
    """The scans that ended."""

    def __init__(self, metrics: Metrics) -> None:
        self.scans = metrics.counter("pkgrepo_scans_total", "Scans of installers, by their result.", "state")
        for state in SCAN_RESULTS:  # An increase from nothing would be none.
            self.scans.labels(state)


def register_scan_metrics(metrics: Metrics, database: MongoDatabase, scanner: Scanner) -> None:
    """Add the metrics that are read when they are scraped."""
    uploads = database["uploads"]

    async def waiting() -> Sequence[Metric]:
        age = {"age": {"$subtract": [NOW, "$scan_since"]}}
        number, oldest = await asyncio.gather(
            uploads.count_documents({"tenant_id": {"$gt": ""}, **WAITING_FOR_SCAN}),
            uploads.find_one({"scan_since": {"$exists": True}}, age, sort=[("scan_since", ASCENDING)]),
        )
        seconds = oldest["age"] / 1000 if oldest else 0.0
        return [
            GaugeMetricFamily("pkgrepo_scans_waiting", "Installers that wait for a scan.", number),
            GaugeMetricFamily("pkgrepo_scan_lag_seconds", "How long the oldest of them waits; 0 without one.", seconds),
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
