"""Each service runs alone, told by its environment, and stops when it is asked to."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientConnectionError, ClientSession, UnixConnector

from tests.support.whole.services import Services

SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
KEYS = ("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY")
LIMIT = 60  # seconds; reached only when something hangs


@pytest.fixture
def environment(
    tmp_path: Path, services: Services, mongo_url: str, redis_url: str, rabbitmq_url: str
) -> dict[str, str]:
    """All that a service is told, its keys as files; the folder of installers is the one that the database knows."""
    (tmp_path / "key").write_text("a-key-for-tests-long-enough-to-be-one\n")
    return {
        **os.environ,
        **{f"{name}_FILE": str(tmp_path / "key") for name in KEYS},
        "MONGO_URL": mongo_url,
        "REDIS_URL": redis_url,
        "RABBITMQ_URL": rabbitmq_url,
        "INSTALLERS": str(services.installers),
        "LISTEN": f"unix:/tmp/pkgrepo-{uuid4().hex}.sock",
    }


@asynccontextmanager
async def alone(service: str, environment: dict[str, str]) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", service, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_runs_alone_and_stops_when_asked(service: str, environment: dict[str, str]) -> None:
    path = environment["LISTEN"].removeprefix("unix:")
    async with alone(service, environment) as process, ClientSession(connector=UnixConnector(path)) as session:
        await _ready(process, session)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0


async def test_probes_stand_apart_where_they_are_told_to_and_nothing_else_does(environment: dict[str, str]) -> None:
    path = environment["LISTEN"].removeprefix("unix:") + ".probes"
    environment["MANAGEMENT_LISTEN"] = f"unix:{path}"
    async with alone("auth_service", environment) as process, ClientSession(connector=UnixConnector(path)) as session:
        await _ready(process, session)
        for probe, status in (("livez", 200), ("readyz", 200), ("acme/login", 404)):
            async with session.get(f"http://localhost/{probe}") as answer:
                assert answer.status == status


@pytest.mark.parametrize("service", SERVICES)
async def test_a_missing_key_stops_the_start_with_one_line(service: str, environment: dict[str, str]) -> None:
    del environment["INTERNAL_KEY_FILE"]
    needed = "AUTH_SERVICE_KEY" if service == "gateway" else f"{service.upper()}_KEY"
    async with alone(service, environment) as process:
        _, said = await process.communicate()
        line = f"{service}: {needed}: must be given, or INTERNAL_KEY for all services\n"
        assert (process.returncode, said.decode()) == (1, line)


async def test_an_address_in_use_stops_the_start_with_one_line(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment["LISTEN"] = f"127.0.0.1:{taken.getsockname()[1]}"
        async with alone("gateway", environment) as process:
            assert "address already in use" in await _one_line(process, "gateway")


async def test_a_folder_that_cannot_be_made_stops_the_start_with_one_line(environment: dict[str, str]) -> None:
    environment["INSTALLERS"] = "/dev/null/installers"
    async with alone("upload_service", environment) as process:
        assert "/dev/null/installers" in await _one_line(process, "upload_service")


async def test_an_option_that_the_database_driver_refuses_stops_the_start_with_one_line(
    environment: dict[str, str],
) -> None:
    environment["MONGO_URL"] = "mongodb://127.0.0.1,127.0.0.2/?directConnection=true"
    async with alone("auth_service", environment) as process:
        assert "directConnection" in await _one_line(process, "auth_service")


@pytest.mark.parametrize("service", ["auth_service", "catalog_service", "upload_service", "client_registry"])
async def test_a_service_starts_without_its_stores_and_names_what_is_missing(
    service: str, environment: dict[str, str]
) -> None:
    environment["MONGO_URL"] = "mongodb://127.0.0.1:9"
    path = environment["LISTEN"].removeprefix("unix:")
    async with alone(service, environment) as process, ClientSession(connector=UnixConnector(path)) as session:
        await _answers(process, session)
        async with session.get("http://localhost/readyz") as answer:
            assert answer.status == 503
            assert {"mongodb", "schema"} <= (await answer.json())["missing"].keys()


async def _one_line(process: Process, service: str) -> str:
    """The last words of a service that did not start."""
    async with asyncio.timeout(LIMIT):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().startswith(f"{service}: ")
    assert said.count(b"\n") == 1
    return said.decode()


async def _answers(process: Process, session: ClientSession) -> None:
    async with asyncio.timeout(LIMIT):
        while process.returncode is None:
            try:
                async with session.get("http://localhost/livez"):
                    return
            except ClientConnectionError:
                await asyncio.sleep(0.05)
    raise AssertionError(f"the service ended with {process.returncode}")


async def _ready(process: Process, session: ClientSession) -> None:
    await _answers(process, session)
    async with asyncio.timeout(LIMIT):
        while True:
            async with session.get("http://localhost/readyz") as answer:
                if answer.status == 200:
                    return
