"""What client_registry tells of itself in figures."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client.core import Metric

from common.telemetry.metrics import Metrics, gauges


class ClientStore(Protocol):
    async def counts(self) -> Mapping[str, int]:
        """How many clients each tenant has that has any."""


def ask(metrics: Metrics, store: ClientStore) -> None:
    """Tell what the database knows."""

    async def clients() -> Sequence[Metric]:
        return [gauges("pkgrepo_clients", "Clients of a tenant.", (await store.counts()).items())]

    metrics.add_source("clients", clients)
