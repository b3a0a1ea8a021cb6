"""What services log of a day's work and of its mishaps: whose request it was, and not one secret."""

import re

import pytest

from deploy.folder import SERVICES
from gateway.operations import OPERATIONS
from tests.system.day import Day

pytestmark = pytest.mark.attack("S22")

ID = re.compile(r"[0-9a-f]{32}")
A_TOKEN = "eyJ"  # how whatever is signed as our tokens are begins
TEMPLATES = {f"/{{tenant_id}}/{row.path}" for row in OPERATIONS}


def test_the_logs_hold_no_secret(day: Day) -> None:
    told = "".join(day.logs.values())
    assert len(day.secrets) > 2 * len(OPERATIONS)
    assert A_TOKEN not in told
    assert {name for name, secret in day.secrets.items() if secret in told} == set()


def test_the_errors_hold_no_secret(day: Day) -> None:
    told = "".join(f"{answer.body} {dict(answer.headers)}" for answer in day.errors)
    assert len(day.errors) > len(OPERATIONS)
    assert A_TOKEN not in told
    assert {name for name, secret in day.secrets.items() if secret in told} == set()


@pytest.mark.parametrize("service", [*SERVICES, "gateway"])
def test_every_request_is_logged_by_its_route_and_never_by_its_path(day: Day, service: str) -> None:
    requests = [line for line in day.lines(service) if line["event"] == "request"]
    assert len(requests) > 5
    for line in requests:
        assert ID.fullmatch(line["request_id"])
        assert line["method"].isupper()
        assert line["ms"] >= 0
        assert line["route"] in {*TEMPLATES, "/{path}"} or service != "gateway"
        assert line["route"].startswith("/{tenant_id}/") or line["status"] in {404, 401}


def test_the_gateway_logs_what_became_of_a_request(day: Day) -> None:
    statuses = {
        (line["method"], line["route"], line["status"]) for line in day.lines("gateway") if line["event"] == "request"
    }
    assert statuses >= {
        ("POST", "/{tenant_id}/login", 200),
        ("POST", "/{tenant_id}/login", 401),
        ("POST", "/{tenant_id}/login", 500),
        ("DELETE", "/{tenant_id}/delete_client/{client_id}/{auth_token}", 404),
        ("GET", "/{tenant_id}/download/{server_filename}/{file_name}", 200),
        ("GET", "/{path}", 404),
    }


def test_one_id_leads_from_the_gateway_through_the_services_and_the_event(day: Day) -> None:
    (handled,) = [
        line
        for line in day.lines("catalog_service")
        if line["event"] == "event_handled" and line["event_id"] == day.upload_id
    ]
    for service in ("gateway", "upload_service"):
        routes = [line["route"] for line in day.lines(service) if line.get("request_id") == handled["request_id"]]
        assert routes == ["/{tenant_id}/upload_package_version"]


def test_a_download_has_the_gateway_s_id_in_the_service_too(day: Day) -> None:
    ids = [
        {line["request_id"] for line in day.lines(service) if line.get("route", "").endswith("/{file_name}")}
        for service in ("gateway", "upload_service")
    ]
    assert ids[1] < ids[0]  # One came while the service was away.


def test_each_line_is_of_one_tenant_where_it_is_of_a_tenant(day: Day) -> None:
    tenants = {line["tenant_id"] for line in day.lines("gateway") if line.get("tenant_id")}
    assert len(tenants) == 1
