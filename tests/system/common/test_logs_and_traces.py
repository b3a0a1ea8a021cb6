"""Logs and traces of normal work and outages: they name the tenant and contain no secret."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from deploy.local.folder import SERVICES
from gateway.operations import OPERATIONS
from tests.support.servers.otlp_server import Collector
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.log_scenario import LogScenario, call_everywhere, run_log_scenario
from tests.support.system.services import Api, Services

ID = re.compile(r"[0-9a-f]{32}")
A_TOKEN = "eyJ"  # the beginning of every signed token
TEMPLATES = {f"/{{tenant_id}}/{row.path}" for row in OPERATIONS}
UPLOAD = "POST /{tenant_id}/upload_package_version"


def refused_requests(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of refused requests."""
    return [line for line in lines if line["event"] == "request" and line["status"] >= 400]


@pytest.fixture(scope="module")
async def scenario() -> AsyncIterator[LogScenario]:
    """The log scenario with its own processes and stores."""
    async with run_log_scenario() as scenario:
        yield scenario


async def test_no_operation_logs_a_secret_or_a_path(tenant: Api) -> None:
    scenario = LogScenario(Collector())
    with capture_logs() as lines:
        await call_everywhere(scenario, tenant)
    text = str(lines)
    assert len(scenario.secrets) > 2 * len(OPERATIONS)
    assert A_TOKEN not in text
    assert {name for name, secret in scenario.secrets.items() if secret in text} == set()
    routes = {line["route"] for line in lines if line["event"] == "request"}
    assert len(routes & TEMPLATES) >= len(TEMPLATES) - 1  # A secret with slashes is no client token.
    assert {route for route in routes if not route.startswith("/{tenant_id}/")} <= {"/{path}"}


async def test_a_refused_request_is_logged_with_address_and_code(tenant: Api) -> None:
    await tenant.call("PATCH", "edit_settings", data={"client_authentication": "true"})
    with capture_logs() as lines:
        await tenant.anonymous().call("POST", "get_packages", data={"auth_token": str(uuid4())})
        await tenant.anonymous().call("GET", "no_such_operation")
    found = [(line["status"], line["client_ip"], line["code"]) for line in refused_requests(lines)]
    refused, unknown = (401, "127.0.0.1", "not_authenticated"), (404, "127.0.0.1", "operation_not_found")
    assert found == [refused, unknown]


async def test_a_request_of_a_client_is_logged_with_its_id(tenant: Api) -> None:
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc"})).body
    with capture_logs() as lines:
        await tenant.anonymous().call("POST", "get_packages", data={"auth_token": client["auth_token"]})
    requests = [line for line in lines if line.get("route") == "/{tenant_id}/get_packages"]
    assert len(requests) == 2  # the gateway and catalog_service
    assert {(line["client_ip"], line["client_id"]) for line in requests} == {("127.0.0.1", client["client_id"])}
    assert client["auth_token"] not in str(lines)


async def test_the_log_has_the_address_that_a_trusted_proxy_names(
    services: Services, redis_url: str, tenant: Api
) -> None:
    async with run_gateway(services, redis_url, trusted_proxies="127.0.0.0/8") as address:
        behind = at_gateway(tenant.anonymous(), address)
        with capture_logs() as lines:
            for path in ("test", "no_such_operation"):
                await behind.call("GET", path, headers={"X-Forwarded-For": "192.0.2.7"})
    assert [(line["status"], line["client_ip"]) for line in refused_requests(lines)] == [
        (401, "192.0.2.7"),
        (404, "192.0.2.7"),
    ]


@pytest.mark.full
def test_logs_errors_and_traces_contain_no_secret(scenario: LogScenario) -> None:
    errors = "".join(f"{answer.body} {dict(answer.headers)}" for answer in scenario.errors)
    texts = {"logs": "".join(scenario.logs.values()), "errors": errors, "traces": str(scenario.collector.spans)}
    assert len(scenario.secrets) > 2 * len(OPERATIONS)
    assert len(scenario.errors) > len(OPERATIONS)
    assert len(scenario.collector.spans) > 5 * len(OPERATIONS)
    for name, text in texts.items():
        assert A_TOKEN not in text, name
        assert {secret for secret, value in scenario.secrets.items() if value in text} == set(), name
    sent = scenario.collector.sent
    assert {secret for secret, value in scenario.secrets.items() if value.encode() in sent} == set()


@pytest.mark.full
def test_requests_are_logged_by_route_and_not_by_path(scenario: LogScenario) -> None:
    for service in (*SERVICES, "gateway"):
        requests = [line for line in scenario.lines(service) if line["event"] == "request"]
        assert len(requests) > 5, service
        for line in requests:
            assert ID.fullmatch(line["request_id"])
            assert line["method"].isupper()
            assert line["ms"] >= 0
            assert line["route"] in {*TEMPLATES, "/{path}"} or service != "gateway"
            assert line["route"].startswith("/{tenant_id}/") or line["status"] in {404, 401}


@pytest.mark.full
def test_gateway_service_and_event_log_the_same_request_id(scenario: LogScenario) -> None:
    (handled,) = [
        line
        for line in scenario.lines("catalog_service")
        if line["event"] == "event_handled" and line["event_id"] == scenario.upload_id
    ]
    for service in ("gateway", "upload_service"):
        routes = [line["route"] for line in scenario.lines(service) if line.get("request_id") == handled["request_id"]]
        assert routes == ["/{tenant_id}/upload_package_version"]


def steps(scenario: LogScenario, service: str, name: str) -> Iterator[list[tuple[str, str, str]]]:
    """The ancestors of each span with this service and name, up to the root."""
    for span in scenario.collector.spans:
        if (span.service, span.name) == (service, name):
            yield [(step.service, step.kind, step.name) for step in scenario.collector.ancestors(span)]


@pytest.mark.full
def test_an_upload_is_one_trace_from_the_gateway_to_its_event(scenario: LogScenario) -> None:
    service_call = [
        ("upload_service", "server", UPLOAD),
        ("gateway", "client", "POST upload_package_version"),
        ("gateway", "server", UPLOAD),
    ]
    event = [
        ("catalog_service", "client", "update finished_uploads"),
        ("catalog_service", "consumer", "process upload.finished"),
        ("upload_service", "producer", "publish upload.finished"),
        *service_call,
    ]
    assert event in list(steps(scenario, "catalog_service", "update finished_uploads"))
    assert [("upload_service", "client", "update quotas"), *service_call] in list(
        steps(scenario, "upload_service", "update quotas")
    )


@pytest.mark.full
def test_span_attributes_have_known_names_and_safe_values(scenario: LogScenario) -> None:
    texts = {(name, str(value)) for span in scenario.collector.spans for name, value in span.attributes.items()}
    tenants = {value for name, value in texts if name == "pkgrepo.tenant_id"}
    assert len(tenants) == 1
    assert {name for name, value in texts if not re.fullmatch(r"[A-Za-z_.{}/0-9 ]{1,64}", value)} == set()
    assert {name for name, _ in texts} == {
        "cloudevents.event_type",
        "db.collection.name",
        "db.namespace",
        "db.operation.name",
        "db.system.name",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "messaging.operation.name",
        "messaging.operation.type",
        "messaging.system",
        "pkgrepo.request_id",
        "pkgrepo.tenant_id",
        "service.peer.name",
    }


@pytest.mark.full
def test_log_lines_have_the_trace_id_of_their_request(scenario: LogScenario) -> None:
    for service in (*SERVICES, "gateway"):
        spans = {
            (span.attributes["pkgrepo.request_id"], span.trace_id)
            for span in scenario.collector.spans
            if span.kind == "server" and span.service == service
        }
        lines = [line for line in scenario.lines(service) if line["event"] == "request"]
        assert len(lines) > 5, service
        assert spans, service
        assert spans <= {(line["request_id"], line["trace_id"]) for line in lines}
