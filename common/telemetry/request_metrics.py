"""How many requests there were, by route and outcome, and how long they took: counted for every request, so cheaply.

Plain numbers that only the event loop changes cost a quarter of a microsecond; the library's own, which may be changed
by any thread, cost seven times as much.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds
BROKEN_OFF = "broken_off"  # the status of what ended without an answer, or in the middle of one
OTHER = "other"
_TEMPLATE = "/{tenant_id}/"
_NAMES = [str(bound) for bound in BOUNDS] + ["+Inf"]


class Requests:
    """The requests of one service. `in_progress` is how many are being answered."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.in_progress = 0
        self._answered: defaultdict[tuple[str, str, int | str], int] = defaultdict(int)
        # How many took so long, by the place of the bound; last, the seconds of them all.
        self._took: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0] * len(_NAMES) + [0.0])

    def ended(self, method: str, route: str, status: int | str, seconds: float) -> None:
        """One more is over. There are as many routes as templates: whatever was asked besides is one, `other`."""
        if not route.startswith(_TEMPLATE):
            route = OTHER
        self._answered[method, route, status] += 1
        took = self._took[method, route]
        took[bisect_left(BOUNDS, seconds)] += 1
        took[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        answered = CounterMetricFamily(
            "pkgrepo_requests", "Requests answered.", labels=("service", "method", "route", "status")
        )
        for (method, route, status), count in self._answered.items():
            answered.add_metric((self._service, method, route, str(status)), count)
        yield answered
        took = HistogramMetricFamily(
            "pkgrepo_request_seconds", "Seconds until a request was answered.", labels=("service", "method", "route")
        )
        for (method, route), counts in self._took.items():
            buckets = list(zip(_NAMES, accumulate(counts[:-1]), strict=True))
            took.add_metric((self._service, method, route), buckets, counts[-1])
        yield took
        now = GaugeMetricFamily("pkgrepo_requests_in_progress", "Requests being answered.", labels=("service",))
        now.add_metric((self._service,), self.in_progress)
        yield now
