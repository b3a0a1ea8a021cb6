"""The dashboard and the alerts ask for what services really tell: a real Prometheus looks at them and is asked."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import pytest

from common.auth.callers import Deployment
from tests.support.deployment.observability import aggregation_labels, alerts, panels, records
from tests.support.servers.prometheus import Prometheus, run_prometheus, selectors
from tests.support.wait import until
from tests.support.whole.publishing import add_package, package_id, publish, version_of
from tests.support.whole.services import Api, Services

pytestmark = pytest.mark.full  # test_metrics.py checks the names of the metrics.
ASKS = {f"{panel.title} ({number})": text for panel in panels() for number, text in enumerate(panel.queries, 1)}
EXPRESSIONS = {**{name: rule["expr"] for name, rule in alerts().items()}, **records(), **ASKS}
# What is not there while all is well: answers that are failures of ours, and alerts.
UNWELL = re.compile(r'status=~"5|ALERTS')


@pytest.fixture(scope="module")
async def watching(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """It has looked at every service, and again after each was asked something."""
    places: dict[str, list[str]] = {}
    for name, address in services.management.items():
        service = "gateway" if name in set(Deployment) else name
        places.setdefault(service, []).append(address.removeprefix("http://"))
    tenant = await services.tenant(storage_quota=1_000_000, max_clients=10)
    await use(tenant)
    async with run_prometheus(tmp_path_factory.mktemp("prometheus"), places) as watcher:

        async def seen(times: int = 1) -> bool:
            found = await watcher.query(f"count_over_time(pkgrepo_build_info[1m]) >= {times}")
            return len(found) == len(services.management)

        await until(seen)
        await use(tenant)

        async def rising() -> bool:
            refused = await watcher.query('rate(pkgrepo_requests_total{status="401"}[1m]) > 0')
            limit = await watcher.query(f'pkgrepo_storage_quota_bytes{{tenant_id="{tenant.tenant_id}"}}')
            recorded = await watcher.query("service:pkgrepo_errors:ratio_rate5m")
            return bool(refused and limit and recorded) and await seen(2)

        await until(rising)
        yield watcher


async def use(tenant: Api) -> None:
    """Ask for something of everything: what answers, and what refuses."""
    name = package_id()
    await add_package(tenant, name)
    version = await version_of(tenant, await publish(tenant, name))
    async with tenant.session.get(version["INSTALLER_URL"]) as answer:
        assert answer.status == 200
    assert (await tenant.call("POST", "get_packages")).status == 200
    assert (await tenant.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex[:8]}"})).status == 201
    assert (await tenant.anonymous().call("POST", "login", data={"username": "a", "password": "b"})).status == 401


async def found_by(watching: Prometheus, expression: str) -> list[dict[str, str]]:
    """What an expression finds, which is nothing just after a look that took a busy service longer than its second."""
    found: list[dict[str, str]] = []

    async def any_is() -> bool:
        found[:] = await watching.query(expression)
        return bool(found)

    with suppress(TimeoutError):
        await until(any_is)
    return found


async def test_each_panel_has_something_to_show(watching: Prometheus) -> None:
    for name, expression in ASKS.items():
        if not UNWELL.search(expression):
            assert await found_by(watching, expression), name


async def test_each_expression_uses_existing_metrics_and_labels(watching: Prometheus) -> None:
    for name, expression in EXPRESSIONS.items():
        labels: set[str] = set()
        for selector in selectors(expression):
            found = await found_by(watching, selector.replace('"5.."', '"2.."'))
            assert found, (name, selector)
            labels |= {label for series in found for label in series}
        assert aggregation_labels(expression) <= labels or "ALERTS" in expression, name


async def test_prometheus_can_evaluate_each_rule(watching: Prometheus) -> None:
    async def all_of_them() -> bool:
        return all(rule["health"] != "unknown" for rule in await watching.rules())

    await until(all_of_them)
    assert {rule["name"]: rule.get("lastError", "") for rule in await watching.rules()} == dict.fromkeys(
        [*alerts(), *records()], ""
    )
