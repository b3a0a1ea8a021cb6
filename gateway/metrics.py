"""What the gateway tells of itself in figures."""

from common.telemetry.metrics import Metrics
from gateway.caching.catalogs import Catalogs
from gateway.forwarding.audit import AuditRecorder


def show(metrics: Metrics, catalogs: Catalogs, recorder: AuditRecorder) -> None:
    """Tell what is remembered of catalogs, and what the audit log has not heard."""
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of catalogs in memory.", lambda: catalogs.taken, service=service)
    metrics.gauge("pkgrepo_catalogs", "Catalogs in memory.", lambda: catalogs.count, service=service)
    metrics.gauge("pkgrepo_audit_waiting", "Entries that the audit log has not taken yet.", lambda: recorder.waiting)
