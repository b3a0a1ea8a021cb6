"""Queries of the dashboard and alerts, evaluated by a real Prometheus on running services."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Deployment
from tests.support.deployment.observability import aggregation_labels, alerts, panels, records
from tests.support.servers.clamd import answers, fake_clamd
from tests.support.servers.prometheus import Prometheus, run_prometheus, selectors
from tests.support.system.publishing import add_package, package_id, publish, version_of
from tests.support.system.services import Api, Services, all_services
from tests.support.wait import until

pytestmark = pytest.mark.full  # test_metrics.py checks the names of the metrics.
QUERIES = {f"{panel.title} ({number})": text for panel in panels() for number, text in enumerate(panel.queries, 1)}
EXPRESSIONS = {**{name: rule["expr"] for name, rule in alerts().items()}, **records(), **QUERIES}
# Expressions without results in a healthy system: server errors and alerts.
FAILURES_ONLY = re.compile(r'status=~"5|ALERTS')


@pytest.fixture(scope="module")
async def services(
    tmp_path_factory: pytest.TempPathFactory, mongo_url: str, redis_url: str, rabbitmq_url: str
) -> AsyncIterator[Services]:
    """The services with a scanner that has dated signatures."""
    with pytest.MonkeyPatch.context() as patched:
        # Other tests of this process may run services with these databases.
        patched.setattr("tests.support.system.services.SINGLE_TENANT", f"single{uuid4().hex[:8]}")
        async with fake_clamd(answers(b"stream: OK\0")) as scanner:
            folder = tmp_path_factory.mktemp("services")
            async with all_services(folder, mongo_url, redis_url, rabbitmq_url, scanner_url=scanner) as services:
                yield services


@pytest.fixture(scope="module")
async def prometheus(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """A Prometheus that has scraped every service before and after requests."""
    targets: dict[str, list[str]] = {}
    for name, address in services.management.items():
        service = "gateway" if name in set(Deployment) else name
        targets.setdefault(service, []).append(address.removeprefix("http://"))
    tenant = await services.tenant(storage_quota=1_000_000, max_clients=10)
    await send_requests(tenant)
    async with run_prometheus(tmp_path_factory.mktemp("prometheus"), targets) as prometheus:

        async def seen(times: int = 1) -> bool:
            scraped = await prometheus.query(f"count_over_time(pkgrepo_build_info[1m]) >= {times}")
            return len(scraped) == len(services.management)

        await until(seen)
        await send_requests(tenant)

        async def rising() -> bool:
            refused = await prometheus.query('rate(pkgrepo_requests_total{status="401"}[1m]) > 0')
            limit = await prometheus.query(f'pkgrepo_storage_quota_bytes{{tenant_id="{tenant.tenant_id}"}}')
            recorded = await prometheus.query("service:pkgrepo_errors:ratio_rate5m")
            return bool(refused and limit and recorded) and await seen(2)

        await until(rising)
        yield prometheus


async def send_requests(tenant: Api) -> None:
    """Send requests to all services, including one that fails."""
    name = package_id()
    await add_package(tenant, name)
    version = await version_of(tenant, await publish(tenant, name))
    async with tenant.session.get(version["INSTALLER_URL"]) as answer:
        assert answer.status == 200
    assert (await tenant.call("POST", "get_packages")).status == 200
    assert (await tenant.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex[:8]}"})).status == 201
    assert (await tenant.anonymous().call("POST", "login", data={"username": "a", "password": "b"})).status == 401


async def results_of(prometheus: Prometheus, expression: str) -> list[dict[str, str]]:
    """The results of an expression. Retries, because a scrape of a busy service may fail."""
    results: list[dict[str, str]] = []

    async def has_results() -> bool:
        results[:] = await prometheus.query(expression)
        return bool(results)

    with suppress(TimeoutError):
        await until(has_results)
    return results


async def test_each_panel_has_something_to_show(prometheus: Prometheus) -> None:
    for name, expression in QUERIES.items():
        if not FAILURES_ONLY.search(expression):
            assert await results_of(prometheus, expression), name


async def test_each_expression_uses_existing_metrics_and_labels(prometheus: Prometheus) -> None:
    for name, expression in EXPRESSIONS.items():
        labels: set[str] = set()
        for selector in selectors(expression):
            results = await results_of(prometheus, selector.replace('"5.."', '"2.."'))
            assert results, (name, selector)
            labels |= {label for series in results for label in series}
        assert aggregation_labels(expression) <= labels or "ALERTS" in expression, name


async def test_prometheus_can_evaluate_each_rule(prometheus: Prometheus) -> None:
    async def all_evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in await prometheus.rules())

    await until(all_evaluated)
    assert {rule["name"]: rule.get("lastError", "") for rule in await prometheus.rules()} == dict.fromkeys(
        [*alerts(), *records()], ""
    )
