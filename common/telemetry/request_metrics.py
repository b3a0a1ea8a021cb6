"""Metrics of requests, by route and outcome."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds
BROKEN_OFF = "broken_off"  # the status of a request without a complete response
OTHER = "other"
_TEMPLATE = "/{tenant_id}/"


class RequestMetrics:
    """The requests of one service. `in_progress` counts those that are being answered."""

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        labels = ("service", "method", "route")
        self._service = service
        self._answered = Counter("pkgrepo_requests", "Requests answered.", (*labels, "status"), registry=registry)
        text = "Seconds until a request was answered."
        self._seconds = Histogram("pkgrepo_request_seconds", text, labels, buckets=BUCKETS, registry=registry)
        progress = Gauge("pkgrepo_requests_in_progress", "Requests being answered.", ("service",), registry=registry)
        self.in_progress = progress.labels(service)
        # `labels()` costs more than the counting itself.
        self._children: dict[tuple[str, str, int | str], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int | str, seconds: float) -> None:
        """Count one request. Only routes with a tenant are labels; all else is one route, `other`."""
        if not route.startswith(_TEMPLATE):
            route = OTHER
        key = (method, route, status)
        if key not in self._children:
            labels = (self._service, method, route)
            self._children[key] = (self._answered.labels(*labels, str(status)), self._seconds.labels(*labels))
        answered, histogram = self._children[key]
        answered.inc()
        histogram.observe(seconds)
