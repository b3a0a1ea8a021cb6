"""Counts complete downloads, each client once for a version and hour, and writes them in batches."""

import asyncio
from datetime import UTC, datetime
from itertools import islice

from prometheus_client import Counter

from common.telemetry import log
from upload_service.downloads.store import Download, MongoDownloadStore
from upload_service.model import Upload

BATCH = 1000  # downloads of one write
MAX_WAITING = 100_000  # downloads, while the database does not answer


class DownloadCounter:
    """Collects downloads in memory until `flush` writes them. A process that dies loses those of the last seconds."""

    def __init__(self, store: MongoDownloadStore, metric: Counter) -> None:
        """`metric` has the label of the tenant."""
        self._store = store
        self._metric = metric
        self._waiting: dict[Download, None] = {}  # in their order
        self._lock = asyncio.Lock()
        self.since: datetime | None = None  # the time since which every download is counted, if it is known

    async def begin(self) -> None:
        """Record that downloads are counted."""
        self.since = await self._store.begin_counting()

    def count(self, upload: Upload, client: str) -> None:
        """Count a complete download of a file by a client."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting[Download(upload.tenant_id, upload.version_uid, client, current_hour())] = None

    async def flush(self) -> None:
        """Write all downloads that wait. After an error of the database, those without a mark wait on."""
        # A cancelled write could have marked downloads that it did not count.
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            while batch := list(islice(self._waiting, BATCH)):
                unmarked = await self._store.mark(batch)
                for download in batch:
                    self._waiting.pop(download, None)
                await self._add(unmarked)

    async def _add(self, downloads: list[Download]) -> None:
        try:
            await self._store.add(downloads)
        except Exception:
            # Adding again could count twice, because the database may have counted before it failed.
            log.warning("downloads_not_counted", downloads=len(downloads))
            raise
        for download in downloads:
            self._metric.labels(download.tenant_id).inc()


def current_hour() -> datetime:
    """The begin of this hour in UTC."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
