"""The metrics of transfers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import Counter

from common.telemetry.metrics import Metrics


class TransferMetrics:
    """The bytes that were received and sent, the downloads and the uploads that were completed."""

    def __init__(self, metrics: Metrics) -> None:
        self.received = metrics.counter("pkgrepo_upload_bytes_total", "Bytes of uploads' bodies that came.")
        self.sent = metrics.counter("pkgrepo_download_bytes_total", "Bytes of downloads that were sent.")
        self.downloads = metrics.counter(
            "pkgrepo_downloads_total", "Complete downloads, each client once for a file and hour.", "tenant_id"
        )
        self.finished = metrics.counter("pkgrepo_uploads_finished_total", "Uploads that became whole.")


@contextmanager
def count_bytes(counter: Counter, bytes_so_far: Callable[[], int]) -> Iterator[None]:
    """Count the bytes at the end of the block, also if it fails."""
    try:
        yield
    finally:
        counter.inc(bytes_so_far())
