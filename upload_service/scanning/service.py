"""Scans stored files for malware, the metrics of scans, and the checks of files for the gates of release control.

A file is due by its record alone. The announcement of an upload is not consumed here: it would only be a second faster,
and a queue of this service would let it count as delivered before the catalog listens.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from common.errors import Problem
from common.telemetry import log
from common.telemetry.metrics import Metrics
from common.work import Lease, Postponed
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.model import Inspection
from upload_service.model import InstallerNotFound, Upload
from upload_service.scanning.model import ScanFailed, Scanner, ScanState, Verdict, scan_document
from upload_service.scanning.store import MongoScanStore
from upload_service.storage.filesystem import StorageBackends

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
        except (ScanFailed, TimeoutError) as error:  # No scan reports it while no file waits.
            log.warning("scanner_unusable", reason=str(error) or "the scanner does not answer")
            return [GaugeMetricFamily("pkgrepo_scanner_up", "1 if the scanner responds and can be used.", 0)]
        up = GaugeMetricFamily("pkgrepo_scanner_up", "1 if the scanner responds and can be used.", 1)
        if not date:
            return [up]
        age = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds()
        text = "The age of the scanner's signature database."
        return [up, GaugeMetricFamily("pkgrepo_scanner_signatures_age_seconds", text, age)]

    metrics.add_source("scans", waiting)
    metrics.add_source("scanner", engine)


PAUSE_WITHOUT_SCANNER = 10.0  # seconds


@dataclass(frozen=True)
class Scans:
    """Scans files. Those of more than `limit` bytes are not sent; a scan takes at most `timeout` seconds."""

    store: MongoScanStore
    backends: StorageBackends
    scanner: Scanner
    limit: int
    timeout: float
    metrics: ScanMetrics

    async def scan(self, lease: Lease[Upload]) -> None:
        """Scan a file. Raises Postponed if the scanner cannot be used."""
        try:
            engine = await self.scanner.check()
        except ScanFailed as error:
            raise Postponed("scanner_unusable", PAUSE_WITHOUT_SCANNER, reason=str(error)) from None
        upload = lease.record
        try:
            verdict = await self._verdict(upload)
        except (ScanFailed, Problem, OSError) as error:
            reason = type(error).__name__ if isinstance(error, OSError) else str(error)  # An OSError names a path.
            is_current, state = await self.store.mark_failed(lease, reason, engine), ScanState.FAILED
            log.warning("scan_failed", reason=reason, **upload.log_fields)
        else:
            is_current, state = await self.store.mark_scanned(lease, verdict, engine), verdict.state
            report = log.error if state is ScanState.INFECTED else log.info
            report("installer_scanned", state=state, reason=verdict.reason, **upload.log_fields)
        if is_current:
            self.metrics.scans.labels(state).inc()

    async def _verdict(self, upload: Upload) -> Verdict:
        """The verdict about exactly the bytes that were uploaded."""
        if upload.size > self.limit:
            return Verdict(ScanState.TOO_LARGE, "larger than SCANNER_LIMIT")
        digest = hashlib.sha256()
        blocks = self.backends.of(upload).read(upload, 0, upload.size)
        try:
            async with asyncio.timeout(self.timeout), aclosing(_hashed(blocks, digest)) as hashed:
                verdict = await self.scanner.scan(upload, hashed)
        except TimeoutError:
            raise ScanFailed(f"the scanner did not answer within {self.timeout:.0f} seconds") from None
        if verdict.state is not ScanState.TOO_LARGE and digest.hexdigest() != upload.sha256:
            raise ScanFailed("the file that was scanned is not the one that was uploaded")
        return verdict


@dataclass(frozen=True)
class InstallerCheck:
    """The scan and the inspection of the file of a version."""

    version_uid: str
    sha256: str
    scan: dict[str, Any]
    inspection: Inspection


@dataclass(frozen=True)
class InstallerChecks:
    """Reads the checks of files. With `has_scanner`, files without a verdict become due for a scan."""

    store: MongoScanStore
    inspector: Inspector
    has_scanner: bool

    async def find(self, tenant_id: str, version_uids: Sequence[str]) -> list[InstallerCheck]:
        """The checks of the files of these versions; a version without a file is left out."""
        if self.has_scanner:
            await self.store.make_unscanned_due(tenant_id, version_uids)
        checks = []
        async for upload, scan in self.store.find(tenant_id, version_uids):
            with suppress(InstallerNotFound):  # It was removed meanwhile.
                inspection = await self.inspector.find(tenant_id, upload.server_filename)
                checks.append(InstallerCheck(upload.version_uid, upload.sha256, scan or self._unscanned, inspection))
        return checks

    async def scan(self, tenant_id: str, server_filename: str) -> dict[str, Any]:
        """The scan of a stored file, also of one without a version."""
        return await self.store.find_scan(tenant_id, server_filename) or self._unscanned

    @property
    def _unscanned(self) -> dict[str, Any]:
        return scan_document(ScanState.PENDING if self.has_scanner else ScanState.OFF)


async def _hashed(blocks: AsyncGenerator[bytes, None], digest: "hashlib._Hash") -> AsyncGenerator[bytes, None]:
    async with aclosing(blocks):
        async for block in blocks:
            await asyncio.to_thread(digest.update, block)
            yield block
