"""The collection `uploads` for the scrub: files to read, and damaged files; and the metrics of all records.

A stored file has the work `scrub`, which is due once it was read. `damaged_at` is when its `damage` was found.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from pymongo import ASCENDING

from common.mongo import Document, MongoDatabase
from common.telemetry.metrics import Metrics, gauges
from common.work import Lease, WorkQueue
from upload_service.model import Damage, Status, Upload
from upload_service.store import MARK, NOW, QUOTA_TOTALS, SCRUB, STORED, UploadRecords, record_key, to_upload

DAMAGED_AGAIN_SECONDS = 3600  # until a damaged file, which an operator may have restored, is read again
PAGE = 100  # records


@dataclass(frozen=True)
class DamagedInstaller:
    """A file that is not what was uploaded. `version_uid` is "" if no version is linked to it."""

    server_filename: str
    version_uid: str
    damage: Damage
    found_at: datetime


class MongoScrubStore(UploadRecords):
    """The queue of files to read again after `interval` seconds; marks damaged ones, and lists both."""

    def __init__(self, database: MongoDatabase, interval: float = 0) -> None:
        super().__init__(database)
        self.queue = WorkQueue(self._uploads, SCRUB, to_upload, condition=STORED, delay=interval)
        self._interval = interval

    async def mark_intact(self, upload: Upload) -> bool:
        """False if the file was moved or removed while it was read."""
        return await self._mark(upload, {"damage": Damage.NONE, "damaged_at": "$$REMOVE", f"work.{SCRUB}.due": NOW})

    async def mark_damaged(self, upload: Upload, damage: Damage) -> bool:
        """False if the file was moved or removed while it was read."""
        since = {"$cond": [{"$gt": ["$damage", Damage.NONE]}, {"$ifNull": ["$damaged_at", NOW]}, NOW]}
        return await self._mark(upload, {**MARK, "damage": damage, "damaged_at": since})

    async def read_again(self, lease: Lease[Upload], damage: Damage) -> None:
        """End a lease; an operator may have restored a damaged file soon."""
        interval = min(self._interval, DAMAGED_AGAIN_SECONDS) if damage else self._interval
        await self.queue.repeat(lease, interval)

    async def complete_uploads(self, tenant_id: str | None) -> AsyncIterator[Upload]:
        """All complete files, of one tenant or of all."""
        last: Document = {}
        while True:
            cursor = self._uploads.find({**_of(tenant_id), **STORED, **last}).sort("_id", ASCENDING).limit(PAGE)
            page = await cursor.to_list(None)
            for document in page:
                yield to_upload(document)
            if len(page) < PAGE:
                return
            last = {"_id": {"$gt": page[-1]["_id"]}}

    async def total_size(self, tenant_id: str | None) -> int:
        """The bytes of all complete files, of one tenant or of all."""
        return (await self._totals({**_of(tenant_id), **STORED}))[1]

    async def damaged_installers(self, tenant_id: str) -> list[DamagedInstaller]:
        """A tenant's damaged files, in the order in which they were found."""
        cursor = self._uploads.find({"tenant_id": tenant_id, "damage": {"$gt": ""}, **STORED})
        installers = [
            DamagedInstaller(
                document["server_filename"],
                document.get("version_uid", ""),
                Damage(document["damage"]),
                document.get("damaged_at", document["updated_at"]),
            )
            async for document in cursor
        ]
        return sorted(installers, key=lambda installer: (installer.found_at, installer.server_filename))

    async def _mark(self, upload: Upload, fields: Mapping[str, Any]) -> bool:
        return await self._set({**record_key(upload), "home": upload.storage, **STORED}, fields)


def _of(tenant_id: str | None) -> Document:
    return {} if tenant_id is None else {"tenant_id": tenant_id}


def register_metrics(
    metrics: Metrics, database: MongoDatabase, announcements: WorkQueue[Upload], installers: Path
) -> None:
    """Add the metrics that are read when they are scraped."""
    uploads, quotas = database["uploads"], database["quotas"]

    async def records() -> Sequence[Metric]:
        open_transfers, damaged, (waiting, lag) = await asyncio.gather(
            uploads.count_documents({"status": Status.OPEN}),
            uploads.count_documents({"damage": {"$gt": ""}, **STORED}),
            announcements.backlog(),
        )
        return [
            GaugeMetricFamily("pkgrepo_open_transfers", "Uploads that are not whole yet.", open_transfers),
            GaugeMetricFamily("pkgrepo_damaged_installers", "Stored files that are not what was uploaded.", damaged),
            GaugeMetricFamily("pkgrepo_outbox_waiting", "Whole uploads that are not announced.", waiting),
            GaugeMetricFamily("pkgrepo_outbox_lag_seconds", "The age of the oldest of them; 0 without one.", lag),
        ]

    async def usage() -> Sequence[Metric]:
        fields = {"_id": False, **dict.fromkeys(QUOTA_TOTALS, True)}
        tenants = await quotas.find({"tenant_id": {"$gt": ""}}, fields).to_list(None)
        used = [(tenant["tenant_id"], tenant["used"]) for tenant in tenants]
        reserved = [(tenant["tenant_id"], tenant["reserved"]) for tenant in tenants]
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
