"""What traces tell of a day's work, and what becomes of it where the collector is away."""

import asyncio
import os
import re
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, TCPConnector

from deploy.folder import SERVICES
from gateway.operations import OPERATIONS
from tests.collector import Span, collecting
from tests.factories import KEY
from tests.ports import free_port
from tests.system.day import STRANGERS_TRACE, Day
from tests.waiting import until

LIMIT = 20  # seconds; the library alone would wait for half a minute, and longer for a collector that is silent
WITHOUT = "import sys; sys.modules['opentelemetry'] = None; "  # as where it is not installed
TEMPLATES = {f"/{{tenant_id}}/{row.path}" for row in OPERATIONS}
UPLOAD = "POST /{tenant_id}/upload_package_version"


def steps(day: Day, service: str, name: str) -> Iterator[list[tuple[str, str, str]]]:
    """What led to each such span of a service, from itself to the root."""
    for span in day.collector.spans:
        if (span.service, span.name) == (service, name):
            yield [(step.service, step.kind, step.name) for step in day.collector.way(span)]


def requests(day: Day, name: str) -> list[Span]:
    """The requests of callers."""
    return [span for span in day.collector.spans if span.name == name and not span.parent_id]


def test_an_upload_is_one_tree_from_the_gateway_to_whoever_hears_of_it(day: Day) -> None:
    to_the_service = [
        ("upload_service", "server", UPLOAD),
        ("gateway", "client", "POST upload_package_version"),
        ("gateway", "server", UPLOAD),
    ]
    heard = [
        ("catalog_service", "client", "update finished_uploads"),
        ("catalog_service", "consumer", "process upload.finished"),
        ("upload_service", "producer", "publish upload.finished"),
        *to_the_service,
    ]
    assert heard in list(steps(day, "catalog_service", "update finished_uploads"))
    assert [("upload_service", "client", "update quotas"), *to_the_service] in list(
        steps(day, "upload_service", "update quotas")
    )


def test_a_catalog_s_trace_has_what_redis_and_mongodb_were_asked(day: Day) -> None:
    name = "POST /{tenant_id}/get_packages"
    asked: set[tuple[str, str, str]] = set()
    for request in requests(day, name):
        spans = day.collector.traces()[request.trace_id].values()
        asked |= {(span.service, span.attributes.get("db.system.name", ""), span.name) for span in spans}
    assert asked >= {
        ("gateway", "", name),
        ("gateway", "redis", "EVALSHA"),
        ("gateway", "", "POST get_packages"),
        ("catalog_service", "", name),
        ("catalog_service", "mongodb", "find packages"),
        ("catalog_service", "mongodb", "find versions"),
    }


@pytest.mark.attack("S22")
def test_the_traces_hold_no_secret_and_no_name_of_a_callers(day: Day) -> None:
    assert len(day.collector.spans) > 5 * len(OPERATIONS)
    assert b"eyJ" not in day.collector.sent
    told = {name for name, secret in day.secrets.items() if secret.encode() in day.collector.sent}
    assert told == set()


@pytest.mark.attack("S22")
def test_what_is_told_of_a_span_is_of_our_own_making(day: Day) -> None:
    texts = {(name, str(value)) for span in day.collector.spans for name, value in span.attributes.items()}
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


def test_requests_are_named_by_their_routes(day: Day) -> None:
    for span in day.collector.spans:
        if span.kind == "server":
            assert span.name == f"{span.attributes['http.request.method']} {span.attributes['http.route']}"
            assert span.service != "gateway" or span.attributes["http.route"] in {*TEMPLATES, "/{path}"}


@pytest.mark.attack("S22")
def test_a_caller_s_trace_is_none_of_ours(day: Day) -> None:
    (linked,) = [span for span in day.collector.spans if span.links]
    theirs = STRANGERS_TRACE.split("-")[1]
    assert (linked.service, linked.links, linked.parent_id) == ("gateway", (theirs,), "")
    assert theirs not in day.collector.traces()


@pytest.mark.parametrize("service", [*SERVICES, "gateway"])
def test_a_line_of_the_log_has_the_trace_of_its_request(day: Day, service: str) -> None:
    spans = {
        (span.attributes["pkgrepo.request_id"], span.trace_id)
        for span in day.collector.spans
        if span.kind == "server" and span.service == service
    }
    lines = [line for line in day.lines(service) if line["event"] == "request"]
    assert len(lines) > 5
    assert spans
    assert spans <= {(line["request_id"], line["trace_id"]) for line in lines}


@asynccontextmanager
async def gateway(redis_url: str, *command: str, **environment: str) -> AsyncIterator[tuple[Process, str]]:
    """A gateway alone, and the address of what it answers 500: there is no service behind it."""
    port = free_port()
    told = {
        **os.environ,
        "INTERNAL_KEY": KEY,
        "SESSION_KEY": KEY,
        "REDIS_URL": redis_url,
        "LISTEN": f"127.0.0.1:{port}",
        "AUTH_SERVICE_URL": "unix:/nowhere",
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, *(command or ("-m", "gateway")), env=told, stderr=PIPE
    )
    try:
        yield process, f"http://127.0.0.1:{port}/acme/login"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def asked(url: str) -> bool:
    """Whether a request of a connection of its own was answered."""
    try:
        async with ClientSession(connector=TCPConnector(force_close=True)) as session, session.post(url) as response:
            return response.status == 500
    except OSError:
        return False


async def test_a_collector_that_is_silent_costs_no_request_and_does_not_keep_a_service_from_ending(
    redis_url: str,
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    silent.setblocking(False)
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_BSP_MAX_QUEUE_SIZE": "8",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4",
    }
    with silent:
        async with gateway(redis_url, **settings) as (process, url), asyncio.timeout(LIMIT):
            await until(lambda: asked(url))
            sending, _ = await asyncio.get_running_loop().sock_accept(silent)
            with sending:
                for _ in range(20):
                    assert await asked(url)
                process.terminate()
                assert await process.wait() == 0


async def test_what_a_service_did_until_its_end_reaches_the_collector(redis_url: str) -> None:
    async with (
        collecting() as collector,
        gateway(redis_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as (process, url),
    ):
        await until(lambda: asked(url))
        process.terminate()
        assert await process.wait() == 0
    (span,) = [span for span in collector.spans if span.kind == "server"]
    assert span.attributes["http.response.status_code"] == 500


async def test_each_worker_of_a_service_is_traced(redis_url: str) -> None:
    async with collecting() as collector:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "WORKERS": "2", "OTEL_BSP_SCHEDULE_DELAY": "50"}

        async def both_told() -> bool:
            return await asked(url) and len(collector.processes) == 2

        async with gateway(redis_url, **settings) as (_, url):
            await until(both_told)


@pytest.mark.parametrize("service", [*SERVICES, "gateway"])
async def test_without_a_collector_nothing_of_the_library_is_wanted(service: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{WITHOUT} import {service}.app, common.events.broker, common.telemetry.traced"
    )
    assert await process.wait() == 0


async def test_a_collector_without_the_library_stops_the_start_with_one_line(redis_url: str) -> None:
    run = f"{WITHOUT} import runpy; runpy.run_module('gateway', run_name='__main__')"
    async with gateway(redis_url, "-c", run, OTEL_EXPORTER_OTLP_ENDPOINT="http://[::1]:4318") as (process, _):
        _, said = await process.communicate()
    line = "gateway: OTEL_EXPORTER_OTLP_ENDPOINT: wants the extra `otel`: pip install 'pkgrepo[otel]'\n"
    assert (process.returncode, said.decode()) == (1, line)
