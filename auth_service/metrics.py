"""The metrics of auth_service."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client.core import GaugeMetricFamily, Metric

from auth_service.backups.store import MongoBackupStore
from auth_service.tenants.service import Tenants
from auth_service.throttle.service import TooManyFailures
from auth_service.users.model import BadCredentials
from common.auth.sessions import Sessions
from common.telemetry.metrics import Metrics, gauges

REFUSALS = {BadCredentials: "refused", TooManyFailures: "throttled"}


class LoginMetrics:
    """Counts logins by their outcome."""

    def __init__(self, metrics: Metrics) -> None:
        help_text = "Sign-ins: throttled are those that were not tried, after too many failures."
        counter = metrics.counter("pkgrepo_logins_total", help_text, "outcome")
        self._counters = {outcome: counter.labels(outcome) for outcome in ("succeeded", *REFUSALS.values())}

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count the login in the block."""
        try:
            yield
        except (BadCredentials, TooManyFailures) as error:
            self._counters[REFUSALS[type(error)]].inc()
            raise
        self._counters["succeeded"].inc()


def register_metrics(metrics: Metrics, tenants: Tenants, sessions: Sessions, backups: MongoBackupStore) -> None:
    """Add the metrics that are read from the stores."""

    async def limits() -> Sequence[Metric]:
        all_tenants = await tenants.list()
        quotas = [(each.tenant_id, each.storage_quota) for each in all_tenants if each.storage_quota is not None]
        clients = [(each.tenant_id, each.max_clients) for each in all_tenants if each.max_clients is not None]
        return [
            gauges("pkgrepo_storage_quota_bytes", "Bytes of installers that a tenant may have.", quotas),
            gauges("pkgrepo_clients_max", "Clients that a tenant may have.", clients),
        ]

    async def session_count() -> Sequence[Metric]:
        return [GaugeMetricFamily("pkgrepo_sessions", "Sessions of administrators.", await sessions.count())]

    async def last_backup() -> Sequence[Metric]:
        at = await backups.last_success()
        help_text = "When `pkgrepo backup` last succeeded, in seconds since 1970; 0 if it never did."
        return [GaugeMetricFamily("pkgrepo_backup_last_success", help_text, at.timestamp() if at else 0)]

    metrics.add_source("limits", limits)
    metrics.add_source("sessions", session_count)
    metrics.add_source("backups", last_backup)
