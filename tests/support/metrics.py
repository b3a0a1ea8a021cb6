"""Parsed responses of `/metrics`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class MetricSample:
    """One line of the response."""

    name: str
    labels: Mapping[str, str]
    value: float


class MetricSamples:
    """All samples of one response. `kinds` are the metric types by metric name."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.samples = [
            MetricSample(line.name, line.labels, line.value) for family in families for line in family.samples
        ]
        self.kinds = {family.name + ("_total" if family.type == "counter" else ""): family.type for family in families}
        assert len(set(map(_key, self.samples))) == len(self.samples)

    def named(self, name: str, **labels: str) -> list[MetricSample]:
        """The samples with this name and these labels, among others."""
        return [line for line in self.samples if line.name == name and labels.items() <= line.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """The sum of those samples; 0 without any."""
        return sum(line.value for line in self.named(name, **labels))

    def texts(self) -> Iterator[str]:
        """All label values."""
        return (text for line in self.samples for text in line.labels.values())


async def fetch_metrics(session: ClientSession, management: str) -> MetricSamples:
    """The metrics of a management address."""
    async with session.get(f"{management}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return MetricSamples(await answer.text())


def _key(line: MetricSample) -> tuple[str, frozenset[tuple[str, str]]]:
    return line.name, frozenset(line.labels.items())
