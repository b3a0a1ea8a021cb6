"""Figures that have to be asked for: asked once, remembered for a while, and left out where they do not come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client.core import GaugeMetricFamily, Metric

from common.http.readiness import READINESS
from common.http.server import watched_app
from common.telemetry.metrics import METRICS, Metrics, metrics_handler
from common.telemetry.worker_metrics import merge

Told = Sequence[Metric]


class Store:
    """Tells how often it was asked, once it is let, and as long as it is there."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self) -> Told:
        self.asked += 1
        await self.answers.wait()
        if self.away:
            raise OSError("nobody is there")
        return [GaugeMetricFamily("asked", "How often.", self.asked)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def metrics(store: Store) -> Metrics:
    metrics = Metrics("tests")
    metrics.add_source("store", store.ask)
    return metrics


async def asked(metrics: Metrics) -> list[float]:
    """What is told of the store."""
    return [sample.value for metric in await metrics.collect() for sample in metric.samples if sample.name == "asked"]


async def test_a_store_is_asked_once_by_all_who_want_its_figures_within_a_while(metrics: Metrics) -> None:
    assert list(await asyncio.gather(asked(metrics), asked(metrics))) == [[1], [1]]
    assert await asked(metrics) == [1]


async def test_after_a_while_a_store_is_asked_again(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    assert [await asked(metrics) for _ in range(2)] == [[1], [2]]


async def test_a_store_that_fails_is_left_out_and_asked_again(
    metrics: Metrics, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    assert await asked(metrics) == [1]
    store.away = True
    assert await asked(metrics) == []
    store.away = False
    assert await asked(metrics) == [3]


async def test_a_store_that_is_slow_is_left_out_and_not_asked_beside_itself(
    metrics: Metrics, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 0.01)
    store.answers.clear()
    async with asyncio.timeout(60):
        assert [await asked(metrics) for _ in range(3)] == [[], [], []]
    assert store.asked == 1
    store.answers.set()
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 60)
    assert await asked(metrics) == [1]


async def test_what_a_service_misses_is_told_however_long_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.readiness.CHECK_TIMEOUT", 0.05)
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", 0.05)
    app = watched_app("tests", nothing, access_log=False)
    app[READINESS].check("store", asyncio.Event().wait)
    for _ in range(2):
        (ready,) = [metric for metric in await app[METRICS].collect() if metric.name == "pkgrepo_ready"]
        assert [(sample.labels["dependency"], sample.value) for sample in ready.samples] == [("store", 0)]


async def test_figures_are_told_while_all_threads_wait_for_a_disk() -> None:
    disk = Event()

    async def told() -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, disk.wait)
        try:
            async with asyncio.timeout(60):
                return await metrics_handler([Metrics("tests")])(make_mocked_request("GET", "/metrics"))
        finally:
            disk.set()
            await waiting

    answer = await asyncio.to_thread(asyncio.run, told())  # The threads are that loop's, and end with it.
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    assert b"pkgrepo_build_info" in answer.body


async def nothing(_: web.Application) -> AsyncIterator[None]:
    yield


async def test_several_may_ask_a_worker_at_once(tmp_path: Path) -> None:
    workers = [Metrics("tests") for _ in range(2)]
    for number, worker in enumerate(workers):
        worker.share(tmp_path, number)
        worker.counter("things", "Things.").inc()
    await asyncio.gather(*(worker.collect() for worker in workers))
    for found in await asyncio.gather(*(worker.collect() for worker in workers * 50)):
        assert [sample.value for metric in found for sample in metric.samples if sample.name == "things_total"] == [2]


async def test_of_several_workers_counts_are_added_and_the_worst_delay_is_told(tmp_path: Path) -> None:
    def told(found: Told) -> dict[str, float]:
        return {sample.name: sample.value for metric in found for sample in metric.samples}

    workers = [Metrics("tests") for _ in range(2)]
    for number, worker in enumerate(workers):
        worker.share(tmp_path, number)
        worker.counter("things", "Things.").inc(number + 1)
        worker.requests.in_progress.set(number + 3)
        worker._lag._delays.append((0, number + 0.5))

    for _ in range(2):  # The first has not heard of the second.
        found = [told(await worker.collect()) for worker in workers]

    for one in found:
        assert one["things_total"] == 3
        assert one["pkgrepo_requests_in_progress"] == 7
        assert one["pkgrepo_event_loop_lag_seconds"] == 1.5
        assert one["pkgrepo_build_info"] == 1


def test_figures_of_several_services_stand_under_one_name() -> None:
    services = [Metrics(name) for name in ("one", "other")]
    found = merge([metrics._collect_local() for metrics in services])
    assert len({metric.name for metric in found}) == len(found)
    (progress,) = [metric for metric in found if metric.name == "pkgrepo_requests_in_progress"]
    assert [sample.labels["service"] for sample in progress.samples] == ["one", "other"]
