"""The metrics of transfers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from prometheus_client import Counter

from common.telemetry.metrics import Metrics


class TransferMetrics:
    """Counts the bytes that were received and sent, and the uploads that were completed."""

    def __init__(self, metrics: Metrics) -> None:
        self._received = metrics.counter("pkgrepo_upload_bytes_total", "Bytes of uploads' bodies that came.")
        self._sent = metrics.counter("pkgrepo_download_bytes_total", "Bytes of downloads that were sent.")
        self._finished = metrics.counter("pkgrepo_uploads_finished_total", "Uploads that became whole.")

    def upload(self, bytes_received: Callable[[], int]) -> AbstractContextManager[None]:
        """Count the bytes received at the end of the block, also if it fails."""
        return _count_at_end(self._received, bytes_received)

    def download(self, bytes_sent: Callable[[], int]) -> AbstractContextManager[None]:
        """Count the bytes sent at the end of the block, also if it fails."""
        return _count_at_end(self._sent, bytes_sent)

    def finished(self) -> None:
        self._finished.inc()


@contextmanager
def _count_at_end(counter: Counter, count: Callable[[], int]) -> Iterator[None]:
    try:
        yield
    finally:
        counter.inc(count())
