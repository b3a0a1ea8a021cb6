"""Traces at the end of a service, and with an unavailable collector."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, TCPConnector

from deploy.local.folder import SERVICES
from tests.support.factories import KEY
from tests.support.servers.otlp_server import run_collector
from tests.support.servers.ports import free_port
from tests.support.wait import until

START = 60  # seconds until a process answers on a busy machine
LIMIT = 60  # seconds; the library alone would wait for a silent collector for an hour
WITHOUT = "import sys; sys.modules['opentelemetry'] = None; "  # as without the package


@asynccontextmanager
async def gateway(redis_url: str, *command: str, **environment: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a gateway without services. Yields it and an address that it answers with 500."""
    port = free_port()
    settings = {
        **os.environ,
        "INTERNAL_KEY": KEY,
        "SESSION_KEY": KEY,
        "REDIS_URL": redis_url,
        "LISTEN": f"127.0.0.1:{port}",
        "AUTH_SERVICE_URL": "unix:/nowhere",
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, *(command or ("-m", "gateway")), env=settings, stderr=PIPE
    )
    try:
        yield process, f"http://127.0.0.1:{port}/acme/login"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def is_answered(url: str) -> bool:
    """Whether a request on a new connection is answered."""
    try:
        async with ClientSession(connector=TCPConnector(force_close=True)) as session, session.post(url) as response:
            return response.status == 500
    except OSError:
        return False


@pytest.mark.full
async def test_a_silent_collector_delays_no_request_and_no_stop(
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
        async with gateway(redis_url, **settings) as (process, url):
            await until(lambda: is_answered(url), timeout=START)
            async with asyncio.timeout(LIMIT):
                sending, _ = await asyncio.get_running_loop().sock_accept(silent)
            with sending:
                for _ in range(20):
                    assert await is_answered(url)
                process.terminate()
                async with asyncio.timeout(LIMIT):
                    assert await process.wait() == 0


async def test_a_stopping_service_exports_its_last_spans(redis_url: str) -> None:
    async with (
        run_collector() as collector,
        gateway(redis_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as (process, url),
    ):
        await until(lambda: is_answered(url), timeout=START)
        process.terminate()
        assert await process.wait() == 0
    (span,) = [span for span in collector.spans if span.kind == "server"]
    assert span.attributes["http.response.status_code"] == 500


async def test_without_a_collector_no_service_needs_the_library() -> None:
    services = ", ".join(f"{service}.app" for service in (*SERVICES, "gateway"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{WITHOUT} import {services}, common.events.broker, common.http.middleware"
    )
    assert await process.wait() == 0


async def test_a_collector_without_the_library_stops_the_start_with_one_line(redis_url: str) -> None:
    run = f"{WITHOUT} import runpy; runpy.run_module('gateway', run_name='__main__')"
    async with gateway(redis_url, "-c", run, OTEL_EXPORTER_OTLP_ENDPOINT="http://[::1]:4318") as (process, _):
        _, errors = await process.communicate()
    line = "gateway: OTEL_EXPORTER_OTLP_ENDPOINT: wants the extra `otel`: pip install 'pkgrepo[otel]'\n"
    assert (process.returncode, errors.decode()) == (1, line)
