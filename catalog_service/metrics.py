"""What catalog_service tells of itself in figures."""

from collections.abc import Callable

from catalog_service.catalog.cache import Snapshots
from common.events import Count, Outcome
from common.telemetry.metrics import Metrics


def events_counted(metrics: Metrics, event_type: str) -> Count:
    """Where the outcomes of events of a type are counted, each from 0 on."""
    told = "Events: failed are those that are not tried again, unreadable what was none of ours."
    counter = metrics.counter("pkgrepo_events_handled_total", told, "type", "outcome")
    counters = {outcome: counter.labels(event_type, outcome) for outcome in Outcome}
    return lambda outcome: counters[outcome].inc()


def drops_counted(metrics: Metrics) -> Callable[[], None]:
    """Where it is counted that what one tenant searches gave way to another's."""
    told = "Search indexes dropped for another tenant's, and read again by the next search."
    return metrics.counter("pkgrepo_search_indexes_dropped_total", told).inc


def show(metrics: Metrics, snapshots: Snapshots) -> None:
    """Tell what is kept of catalogs."""
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of catalogs in memory.", lambda: snapshots.size, service=service)
    metrics.gauge("pkgrepo_catalogs", "Catalogs in memory.", lambda: snapshots.count, service=service)
