"""The metrics of client_registry."""

from collections.abc import Sequence

from prometheus_client.core import Metric

from client_registry.clients.store import MongoClientStore
from common.telemetry.metrics import Metrics, gauges


def register_metrics(metrics: Metrics, store: MongoClientStore) -> None:
    """Add the metrics that are read from the database."""

    async def clients() -> Sequence[Metric]:
        return [gauges("pkgrepo_clients", "Clients of a tenant.", (await store.counts()).items())]

    metrics.add_source("clients", clients)
