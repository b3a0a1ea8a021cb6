"""Metrics of stores: queried once, cached for a while, and omitted after a failure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client.core import GaugeMetricFamily, Metric

from common.http.server import READINESS, watched_app
from common.telemetry.metrics import METRICS, Metrics, merge, metrics_handler

Told = Sequence[Metric]


class Store:
    """Returns the number of its queries, after a test opens it and unless it is away."""

    def __init__(self) -> None:
        self.query_count = 0
        self.away = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self) -> Told:
        self.query_count += 1
        await self.answers.wait()
        if self.away:
            raise OSError("nobody is there")
        return [GaugeMetricFamily("asked", "How often.", self.query_count)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def metrics(store: Store) -> Metrics:
    metrics = Metrics("tests")
    metrics.add_source("store", store.ask)
    return metrics


async def store_values(metrics: Metrics) -> list[float]:
    """The reported values of the store."""
    return [sample.value for metric in await metrics.collect() for sample in metric.samples if sample.name == "asked"]


async def test_concurrent_scrapes_share_one_query_of_a_store(metrics: Metrics) -> None:
    assert list(await asyncio.gather(store_values(metrics), store_values(metrics))) == [[1], [1]]
    assert await store_values(metrics) == [1]


async def test_a_store_is_queried_again_after_the_cache_lifetime(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    assert [await store_values(metrics) for _ in range(2)] == [[1], [2]]


async def test_a_failed_store_is_omitted_and_queried_again(
    metrics: Metrics, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    assert await store_values(metrics) == [1]
    store.away = True
    assert await store_values(metrics) == []
    store.away = False
    assert await store_values(metrics) == [3]


async def test_a_slow_store_is_omitted_and_queried_once_at_a_time(
    metrics: Metrics, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 0.01)
    store.answers.clear()
    async with asyncio.timeout(60):
        assert [await store_values(metrics) for _ in range(3)] == [[], [], []]
    assert store.query_count == 1
    store.answers.set()
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 60)
    assert await store_values(metrics) == [1]


async def test_a_missing_dependency_is_reported_despite_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.server.CHECK_TIMEOUT", 0.05)
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 0.05)
    app = watched_app("tests", nothing, access_log=False)
    app[READINESS].check("store", asyncio.Event().wait)
    for _ in range(2):
        (ready,) = [metric for metric in await app[METRICS].collect() if metric.name == "pkgrepo_ready"]
        assert [(sample.labels["dependency"], sample.value) for sample in ready.samples] == [("store", 0)]


async def test_metrics_are_served_while_all_threads_wait_for_a_disk() -> None:
    disk = Event()

    async def scrape() -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, disk.wait)
        try:
            async with asyncio.timeout(60):
                return await metrics_handler([Metrics("tests")])(make_mocked_request("GET", "/metrics"))
        finally:
            disk.set()
            await waiting

    answer = await asyncio.to_thread(asyncio.run, scrape())  # The loop owns the threads and ends them.
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    assert b"pkgrepo_build_info" in answer.body


async def nothing(_: web.Application) -> AsyncIterator[None]:
    yield


async def test_metrics_of_several_services_share_one_name() -> None:
    services = [Metrics(name) for name in ("one", "other")]
    merged = merge([await metrics.collect() for metrics in services])
    assert len({metric.name for metric in merged}) == len(merged)
    (progress,) = [metric for metric in merged if metric.name == "pkgrepo_requests_in_progress"]
    assert [sample.labels["service"] for sample in progress.samples] == ["one", "other"]
