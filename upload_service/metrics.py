"""The metrics of transfers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.telemetry.metrics import Metrics


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
