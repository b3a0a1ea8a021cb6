"""The metrics of all tenants' records and quotas, and of the disk; an index answers each query."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from common.mongo import MongoDatabase
from common.telemetry.metrics import Metrics, gauges
from common.work import WorkQueue
from upload_service.model import Status, Upload
from upload_service.store import QUOTA_TOTALS, STORED


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
