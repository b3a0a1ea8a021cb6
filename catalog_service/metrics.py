"""What catalog_service tells of itself in figures."""

from catalog_service.snapshots import Snapshots
from common.events import Count, Outcome
from common.telemetry.metrics import Metrics


def events_counted(metrics: Metrics, event_type: str) -> Count:
    """Where the outcomes of events of a type are counted, each from 0 on."""
    told = "Events: failed are those that are not tried again, unreadable what was none of ours."
    counter = metrics.counter("pkgrepo_events_handled_total", told, "type", "outcome")
    counters = {outcome: counter.labels(event_type, outcome) for outcome in Outcome}
    return lambda outcome: counters[outcome].inc()


def show(metrics: Metrics, snapshots: Snapshots) -> None:
    """Tell what is kept of catalogs."""
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of catalogs in memory.", lambda: snapshots.size, service=service)
    metrics.gauge("pkgrepo_catalogs", "Catalogs in memory.", lambda: snapshots.count, service=service)
