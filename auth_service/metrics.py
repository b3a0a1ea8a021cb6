"""What auth_service tells of itself in figures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client.core import GaugeMetricFamily, Metric

from auth_service.model import BadCredentials, TooManyFailures
from auth_service.tenants.service import Tenants
from common.auth.sessions import Sessions
from common.telemetry.metrics import Metrics, gauges

OUTCOMES = ("succeeded", "refused", "throttled")


class Attempts:
    """Counts how sign-ins end, each with a name and a password."""

    def __init__(self, metrics: Metrics) -> None:
        told = "Sign-ins: throttled are those that were not tried, after too many failures."
        counter = metrics.counter("pkgrepo_logins_total", told, "outcome")
        self._succeeded, self._refused, self._throttled = (counter.labels(outcome) for outcome in OUTCOMES)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Let the block be one."""
        try:
            yield
        except BadCredentials:
            self._refused.inc()
            raise
        except TooManyFailures:
            self._throttled.inc()
            raise
        self._succeeded.inc()


def ask(metrics: Metrics, tenants: Tenants, sessions: Sessions) -> None:
    """Tell also what the stores know."""

    async def limits() -> Sequence[Metric]:
        listed = await tenants.list()
        quotas = [(tenant.tenant_id, tenant.storage_quota) for tenant in listed if tenant.storage_quota is not None]
        most = [(tenant.tenant_id, tenant.max_clients) for tenant in listed if tenant.max_clients is not None]
        return [
            gauges("pkgrepo_storage_quota_bytes", "Bytes of installers that a tenant may have.", quotas),
            gauges("pkgrepo_clients_max", "Clients that a tenant may have.", most),
        ]

    async def signed_in() -> Sequence[Metric]:
        return [GaugeMetricFamily("pkgrepo_sessions", "Sessions of administrators.", await sessions.count())]

    metrics.add_source("limits", limits)
    metrics.add_source("sessions", signed_in)
