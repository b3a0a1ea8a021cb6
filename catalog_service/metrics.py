"""The metrics of catalog_service."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from prometheus_client.core import Metric

from catalog_service.catalog.cache import CatalogCache
from catalog_service.model.releases import Gate
from common.events import Count, Outcome
from common.telemetry.metrics import Metrics, gauges


def count_events(metrics: Metrics, event_type: str) -> Count:
    """Return a function that counts the outcomes of events of a type, each from 0 on."""
    help_text = "Events: failed are those that are not tried again, unreadable what was none of ours."
    counter = metrics.counter("pkgrepo_events_handled_total", help_text, "type", "outcome")
    counters = {outcome: counter.labels(event_type, outcome) for outcome in Outcome}
    return lambda outcome: counters[outcome].inc()


def count_evictions(metrics: Metrics) -> Callable[[], None]:
    """Return a function that counts search indexes dropped for another tenant's."""
    help_text = "Search indexes dropped for another tenant's, and read again by the next search."
    return metrics.counter("pkgrepo_search_indexes_dropped_total", help_text).inc


def register_metrics(
    metrics: Metrics, catalogs: CatalogCache, count_waiting: Callable[[], Awaitable[Mapping[str, int]]]
) -> None:
    """`count_waiting` returns the numbers of versions of all tenants by the gate that they wait for."""

    async def waiting() -> Sequence[Metric]:
        counts, text = await count_waiting(), "Versions whose next ring waits for the gate."
        return [gauges("pkgrepo_versions_waiting", text, [(gate, counts.get(gate, 0)) for gate in Gate], label="gate")]

    metrics.add_source("releases", waiting)
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of cached catalogs.", lambda: catalogs.size, service=service)
    metrics.gauge("pkgrepo_catalogs", "Cached catalogs.", lambda: catalogs.count, service=service)
