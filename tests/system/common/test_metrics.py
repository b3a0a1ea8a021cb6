"""Metrics of the services for Prometheus."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession, UnixConnector
from pymongo import AsyncMongoClient

from auth_service.store import MongoBackupStore
from common.auth.internal_tokens import Deployment
from common.mongo import Document, open_database
from tests.support.deployment.observability import alerts, panels, records
from tests.support.metrics import MetricSamples, fetch_metrics
from tests.support.servers.prometheus import selectors
from tests.support.system.publishing import add_package, download, package_id, publish, send_chunk, version_of
from tests.support.system.seed import SeedData, seed_tenant
from tests.support.system.services import Api, Services
from tests.support.wait import TIMEOUT, until

MetricKinds = dict[str, tuple[str, tuple[str, ...]]]


async def metrics_of(services: Services, name: str) -> MetricSamples:
    """The metrics of a service, or of the multi-tenant gateway."""
    return await fetch_metrics(services.session, services.management[Deployment.MULTI if name == "gateway" else name])


TENANT, SERVICE = ("tenant_id",), ("service",)
# The common and the own metrics of the services, each with its kind and labels.
COMMON: MetricKinds = {
    "pkgrepo_requests_total": ("counter", ("method", "route", "service", "status")),
    "pkgrepo_request_seconds": ("histogram", ("method", "route", "service")),
    "pkgrepo_requests_in_progress": ("gauge", SERVICE),
    "pkgrepo_ready": ("gauge", ("dependency", "service")),
    "pkgrepo_build_info": ("gauge", ("service", "version")),
    "pkgrepo_event_loop_lag_seconds": ("gauge", SERVICE),
    "process_resident_memory_bytes": ("gauge", SERVICE),
    "process_cpu_seconds_total": ("counter", SERVICE),
    "process_open_fds": ("gauge", SERVICE),
    "process_max_fds": ("gauge", SERVICE),
}
WITH_DATABASE: MetricKinds = {"pkgrepo_schema_version": ("gauge", SERVICE)}
WITH_SCANNER: MetricKinds = {
    "pkgrepo_scans_total": ("counter", ("state",)),
    "pkgrepo_scans_waiting": ("gauge", ()),
    "pkgrepo_scan_lag_seconds": ("gauge", ()),
    "pkgrepo_scanner_up": ("gauge", ()),
    "pkgrepo_scanner_signatures_age_seconds": ("gauge", ()),
}
OWN: Mapping[str, MetricKinds] = {
    "gateway": {
        "pkgrepo_catalog_bytes": ("gauge", SERVICE),
        "pkgrepo_catalogs": ("gauge", SERVICE),
        "pkgrepo_audit_waiting": ("gauge", ()),
        "pkgrepo_event_consumers_missing": ("gauge", SERVICE),
    },
    "auth_service": {
        "pkgrepo_logins_total": ("counter", ("outcome",)),
        "pkgrepo_sessions": ("gauge", ()),
        "pkgrepo_storage_quota_bytes": ("gauge", TENANT),
        "pkgrepo_clients_max": ("gauge", TENANT),
        "pkgrepo_backup_last_success": ("gauge", ()),
    },
    "catalog_service": {
        "pkgrepo_catalog_bytes": ("gauge", SERVICE),
        "pkgrepo_catalogs": ("gauge", SERVICE),
        "pkgrepo_search_indexes_dropped_total": ("counter", ()),
        "pkgrepo_events_handled_total": ("counter", ("outcome", "type")),
        "pkgrepo_versions_waiting": ("gauge", ("gate",)),
        "pkgrepo_event_consumers_missing": ("gauge", SERVICE),
    },
    "upload_service": {
        "pkgrepo_upload_bytes_total": ("counter", ()),
        "pkgrepo_download_bytes_total": ("counter", ()),
        "pkgrepo_downloads_total": ("counter", TENANT),
        "pkgrepo_uploads_finished_total": ("counter", ()),
        "pkgrepo_open_transfers": ("gauge", ()),
        "pkgrepo_storage_used_bytes": ("gauge", TENANT),
        "pkgrepo_storage_reserved_bytes": ("gauge", TENANT),
        "pkgrepo_installers_free_bytes": ("gauge", ()),
        "pkgrepo_installers_size_bytes": ("gauge", ()),
        "pkgrepo_damaged_installers": ("gauge", ()),
        "pkgrepo_outbox_waiting": ("gauge", ()),
        "pkgrepo_outbox_lag_seconds": ("gauge", ()),
    },
    "client_registry": {"pkgrepo_clients": ("gauge", TENANT)},
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the cache of metrics, and allow more time on a busy machine."""
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    monkeypatch.setattr("common.telemetry.metrics.TIMEOUT", TIMEOUT)


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant with one object of each kind, and with limits."""
    return await seed_tenant(await services.tenant(storage_quota=1 << 30, max_clients=7))


async def test_each_service_shows_its_metrics_and_no_others(services: Services, seed_data: SeedData) -> None:
    # The counter of downloads has a line for each tenant with a download.
    name = package_id()
    await add_package(seed_data.api, name)
    published = await publish(seed_data.api, name)
    await download(seed_data.api, (await version_of(seed_data.api, published))["INSTALLER_URL"])

    async def is_counted() -> bool:
        return bool((await metrics_of(services, "upload_service")).named("pkgrepo_downloads_total"))

    await until(is_counted)
    for name, own in OWN.items():
        metrics = await metrics_of(services, name)
        expected = COMMON | own | ({} if name == "gateway" else WITH_DATABASE)
        labels = {
            line.name.removesuffix("_bucket"): tuple(sorted(line.labels.keys() - {"le"})) for line in metrics.samples
        }
        assert metrics.kinds == {metric: kind for metric, (kind, _) in expected.items()}, name
        assert {metric: (metrics.kinds[metric], labels[metric]) for metric in expected} == expected, name
        assert {line.labels["service"] for line in metrics.samples if "service" in line.labels} == {name}


def test_alerts_and_panels_name_metrics_of_the_services() -> None:
    suffix = re.compile("_(bucket|count|sum)$")
    known = {"up"}.union(COMMON, WITH_DATABASE, WITH_SCANNER, *OWN.values())
    expressions = {
        **{name: rule["expr"] for name, rule in alerts().items()},
        **records(),
        **{panel.title: " + ".join(panel.queries) for panel in panels()},
    }
    unknown = [
        (name, selector)
        for name, expression in expressions.items()
        for selector in selectors(expression)
        if not {selector.partition("{")[0], suffix.sub("", selector.partition("{")[0])} & known
    ]
    assert unknown == []


async def test_metrics_show_the_usage_of_a_tenant(services: Services, seed_data: SeedData) -> None:
    tenant_id = seed_data.api.tenant_id
    body = (await seed_data.api.call("GET", "server_information")).body
    uploads, auth = await metrics_of(services, "upload_service"), await metrics_of(services, "auth_service")
    clients = await metrics_of(services, "client_registry")

    assert body["storage_used"] > 0
    assert body["storage_reserved"] > 0
    for name, samples, field in (
        ("pkgrepo_storage_used_bytes", uploads, "storage_used"),
        ("pkgrepo_storage_reserved_bytes", uploads, "storage_reserved"),
        ("pkgrepo_storage_quota_bytes", auth, "storage_quota"),
        ("pkgrepo_clients_max", auth, "max_clients"),
        ("pkgrepo_clients", clients, "clients"),
    ):
        assert samples.value(name, tenant_id=tenant_id) == body[field], name


@pytest.mark.parametrize(
    ("name", "database", "documents"),
    [
        ("auth_service", "auth", {"tenants", "backups"}),
        ("client_registry", "clients", set[str]()),
        ("upload_service", "upload", {"uploads"}),  # the oldest waiting upload, and damaged ones
    ],
)
async def test_metrics_use_indexes(
    services: Services, seed_data: SeedData, mongo_url: str, name: str, database: str, documents: set[str]
) -> None:
    async with AsyncMongoClient[Document](mongo_url) as client:
        profiled = client[database]
        await profiled.command("profile", 2)
        try:
            await metrics_of(services, name)
        finally:
            await profiled.command("profile", 0)
        profile = profiled["system.profile"].find(
            {
                "op": {"$in": ["query", "command"]},
                "command.findAndModify": {"$exists": False},  # background work of a service
                "planSummary": {"$exists": True},
            }
        )
        queries = [entry async for entry in profile if entry["planSummary"] != "IDHACK"]
        await profiled["system.profile"].drop()
    assert queries != []
    assert [entry["command"] for entry in queries if "COLLSCAN" in entry["planSummary"]] == []
    examined = {entry["ns"].partition(".")[2] for entry in queries if entry["docsExamined"]}
    assert examined <= documents


async def test_a_tenant_without_limits_has_no_metrics_of_limits(services: Services, tenant: Api) -> None:
    samples = await metrics_of(services, "auth_service")
    for name in ("pkgrepo_storage_quota_bytes", "pkgrepo_clients_max"):
        assert samples.named(name) != []
        assert samples.named(name, tenant_id=tenant.tenant_id) == []


async def test_uploaded_and_downloaded_bytes_are_counted(services: Services, tenant: Api) -> None:
    before = await metrics_of(services, "upload_service")
    await add_package(tenant, "App")
    content = bytes(100_000)
    published = await publish(tenant, "App", "1.0", content=content)
    address = str((await tenant.call("GET", "get_specific_package_version", published.uid)).body["INSTALLER_URL"])
    assert await download(tenant, address) == content
    assert (await send_chunk(tenant, "begun", b"12345", 0, 3)).status == 200
    after = await metrics_of(services, "upload_service")

    def increase(name: str) -> float:
        return after.value(name) - before.value(name)

    assert increase("pkgrepo_uploads_finished_total") == 1
    assert increase("pkgrepo_open_transfers") == 1
    for name in ("pkgrepo_upload_bytes_total", "pkgrepo_download_bytes_total"):
        assert 100_000 <= increase(name) < 110_000
    assert after.value("pkgrepo_installers_free_bytes") > 0


async def test_sign_ins_are_counted_by_outcome(services: Services, tenant: Api) -> None:
    before = await metrics_of(services, "auth_service")
    await tenant.signed_in()
    statuses = []
    for _ in range(11):
        form = {"username": "admin", "password": "a wrong password"}
        statuses.append((await tenant.anonymous().call("POST", "login", data=form)).status)
    after = await metrics_of(services, "auth_service")

    assert statuses == [401] * 10 + [429]
    for outcome, count in (("succeeded", 1), ("refused", 10), ("throttled", 1)):
        labels = {"outcome": outcome}
        assert after.value("pkgrepo_logins_total", **labels) == before.value("pkgrepo_logins_total", **labels) + count
    assert after.value("pkgrepo_sessions") == before.value("pkgrepo_sessions") + 1


async def test_the_time_of_the_last_backup_is_shown(services: Services, mongo_url: str) -> None:
    async with open_database(mongo_url, "auth") as database:
        await database["backups"].delete_many({})
        assert (await metrics_of(services, "auth_service")).value("pkgrepo_backup_last_success") == 0
        for day in (1, 2):
            await MongoBackupStore(database).record("name", datetime(2026, 1, day, tzinfo=UTC))
    shown = (await metrics_of(services, "auth_service")).value("pkgrepo_backup_last_success")
    assert shown == datetime(2026, 1, 2, tzinfo=UTC).timestamp()


async def test_cached_catalogs_and_handled_events_are_counted(services: Services, seed_data: SeedData) -> None:
    assert (await seed_data.api.call("POST", "get_packages")).status == 200
    for name in ("gateway", "catalog_service"):
        samples = await metrics_of(services, name)
        assert samples.value("pkgrepo_catalogs", service=name) > 0
        assert samples.value("pkgrepo_catalog_bytes", service=name) > 0
    handled = {"type": "upload.finished", "outcome": "handled"}
    assert (await metrics_of(services, "catalog_service")).value("pkgrepo_events_handled_total", **handled) > 0


async def test_gateway_and_service_count_a_request_under_its_route(services: Services, tenant: Api) -> None:
    route = {"method": "DELETE", "route": "/{tenant_id}/delete_client/{client_id}/{auth_token}"}
    before = {name: await metrics_of(services, name) for name in ("gateway", "client_registry")}

    answer = await tenant.call("DELETE", "delete_client", "a-client", "a-token-of-its-own")

    assert answer.status == 404
    for name, was in before.items():
        after = await metrics_of(services, name)
        for figure, labels in (
            ("pkgrepo_requests_total", {"service": name, "status": "404", **route}),
            ("pkgrepo_request_seconds_count", {"service": name, **route}),
            ("pkgrepo_request_seconds_bucket", {"service": name, "le": "+Inf", **route}),
        ):
            assert after.value(figure, **labels) == was.value(figure, **labels) + 1
        assert after.value("pkgrepo_requests_in_progress", service=name) == 0
        assert not [text for text in after.texts() if "a-token" in text or "a-client" in text]


async def test_unknown_paths_and_methods_have_one_label(services: Services) -> None:
    name = "gateway"
    other, unusual = {"service": name, "route": "other"}, {"service": name, "method": "other"}
    before = await metrics_of(services, name)
    async with sessions_at(services.addresses[Deployment.MULTI]) as session:
        for number in range(60):
            async with session.request("GET" if number else "PURGE", f"/made-up-{number}/op{number}") as answer:
                assert answer.status in {401, 404}
    after = await metrics_of(services, name)

    assert after.value("pkgrepo_requests_total", **other) == before.value("pkgrepo_requests_total", **other) + 60
    assert after.value("pkgrepo_requests_total", **unusual) == before.value("pkgrepo_requests_total", **unusual) + 1
    assert len(after.samples) - len(before.samples) < 50
    assert not [text for text in after.texts() if "made-up" in text or "PURGE" in text]


@pytest.mark.parametrize("name", ["gateway", "auth_service"])
async def test_probes_and_metrics_are_not_counted_as_requests(services: Services, name: str) -> None:
    key = Deployment.MULTI if name == "gateway" else name
    before = await metrics_of(services, name)
    for probe in ("livez", "readyz", "metrics"):
        async with services.session.get(f"{services.management[key]}/{probe}") as answer:
            assert answer.status == 200
    async with sessions_at(services.addresses[key]) as session:
        for probe in ("livez", "readyz"):
            async with session.get(f"/{probe}") as answer:
                assert answer.status == 200
        after = await metrics_of(services, name)
        async with session.get("/metrics") as answer:
            assert answer.status == (404 if name == "gateway" else 401)
            assert b"pkgrepo_" not in await answer.read()

    counted = [
        line for line in after.named("pkgrepo_requests_total") if line not in before.named("pkgrepo_requests_total")
    ]
    assert [line for line in counted if line.labels["method"] == "GET" and line.labels["route"] == "other"] == []


def sessions_at(address: str) -> ClientSession:
    """A session at a service, over its unix socket if it has one."""
    if address.startswith("unix:"):
        return ClientSession("http://localhost", connector=UnixConnector(address.removeprefix("unix:")))
    return ClientSession(address)
