"""What the operating system says of a process, as far as it says so: Linux does."""

from collections.abc import Iterator

from prometheus_client import PROCESS_COLLECTOR
from prometheus_client.core import Metric

TOLD = frozenset({"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds", "process_max_fds"})


class Process:
    """The figures of this process, under the name of a service: of several in one process each tells the same."""

    def __init__(self, service: str) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        for metric in PROCESS_COLLECTOR.collect():
            if metric.name in TOLD:
                told = Metric(metric.name, metric.documentation, metric.type)
                for sample in metric.samples:
                    told.add_sample(sample.name, {"service": self._service}, sample.value)
                yield told
