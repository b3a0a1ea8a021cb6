"""Metrics of the gateway's caches and of the audit log's delivery."""

from common.telemetry.metrics import Metrics
from gateway.caching.catalogs import CatalogCache
from gateway.forwarding.audit import AuditRecorder


def register_metrics(metrics: Metrics, catalogs: CatalogCache, recorder: AuditRecorder) -> None:
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of catalogs in memory.", lambda: catalogs.used_bytes, service=service)
    metrics.gauge("pkgrepo_catalogs", "Catalogs in memory.", lambda: catalogs.count, service=service)
    pending = "Entries that the audit log has not taken yet."
    metrics.gauge("pkgrepo_audit_waiting", pending, lambda: recorder.pending_count)
