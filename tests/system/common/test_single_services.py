"""Each service starts alone, or before its stores, with settings from its environment, and stops on SIGTERM."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

import pytest
from aiohttp import ClientConnectionError, ClientSession, UnixConnector

from tests.support.processes.fork_server import Program, start_program
from tests.support.servers.proxy import Mode, run_proxy
from tests.support.system.services import Services
from tests.support.wait import until

SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
KEYS = ("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY")
LIMIT = 180  # seconds; reached only when something hangs


@pytest.fixture
def environment(
    tmp_path: Path, services: Services, mongo_url: str, redis_url: str, rabbitmq_url: str
) -> dict[str, str]:
    """The settings of a service, with its keys in files. The installers' folder must match the database."""
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
async def run_service(service: str, environment: dict[str, str], *options: str) -> AsyncIterator[Program]:
    process = await start_program([sys.executable, *options, "-m", service], env=environment, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def run_listening(
    service: str, environment: dict[str, str], *options: str
) -> AsyncIterator[tuple[Program, ClientSession]]:
    """Run a service at a socket of its own, with a session there."""
    path = f"{environment['LISTEN']}.{service}"
    async with (
        run_service(service, {**environment, "LISTEN": path}, *options) as process,
        ClientSession(connector=UnixConnector(path.removeprefix("unix:"))) as session,
    ):
        yield process, session


async def test_each_service_runs_alone_and_stops_on_sigterm(environment: dict[str, str]) -> None:
    """The option `-s` prevents a fork, which would have the imports of all services."""

    async def run(service: str) -> int:
        async with run_listening(service, environment, "-s") as (process, session):
            await _wait_until_ready(process, session)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT):
                return await process.wait()

    assert await asyncio.gather(*map(run, SERVICES)) == [0] * len(SERVICES)


async def test_the_management_address_answers_only_probes(environment: dict[str, str]) -> None:
    path = environment["LISTEN"].removeprefix("unix:") + ".probes"
    environment["MANAGEMENT_LISTEN"] = f"unix:{path}"
    async with (
        run_service("auth_service", environment) as process,
        ClientSession(connector=UnixConnector(path)) as session,
    ):
        await _wait_until_ready(process, session)
        for probe, status in (("livez", 200), ("readyz", 200), ("acme/login", 404)):
            async with session.get(f"http://localhost/{probe}") as answer:
                assert answer.status == status


async def test_a_missing_key_stops_the_start_with_one_line(environment: dict[str, str]) -> None:
    del environment["INTERNAL_KEY_FILE"]
    for service in SERVICES:
        needed = "AUTH_SERVICE_KEY" if service == "gateway" else f"{service.upper()}_KEY"
        async with run_service(service, environment) as process:
            line = await _one_line(process, service)
        assert line == f"{service}: {needed}: must be given, or INTERNAL_KEY for all services\n"


@pytest.mark.parametrize(
    ("service", "setting", "value", "named"),
    [
        ("upload_service", "INSTALLERS", "/dev/null/installers", "/dev/null/installers"),
        ("auth_service", "MONGO_URL", "mongodb://127.0.0.1,127.0.0.2/?directConnection=true", "directConnection"),
        ("gateway", "LISTEN", "taken", "address already in use"),
    ],
)
async def test_an_unusable_setting_stops_the_start_with_one_line(
    environment: dict[str, str], service: str, setting: str, value: str, named: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment[setting] = value.replace("taken", f"127.0.0.1:{taken.getsockname()[1]}")
        async with run_service(service, environment) as process:
            assert named in await _one_line(process, service)


async def test_a_service_without_its_store_names_it_until_it_is_reachable(environment: dict[str, str]) -> None:
    services = [service for service in SERVICES if service != "gateway"]
    start = asyncio.Barrier(len(services))
    url = environment["MONGO_URL"]
    address = url.partition("://")[2].partition("/?")[0].rpartition("@")[2]  # of a host, or the path of a socket
    async with run_proxy(address if ":" in address else f"unix:{unquote(address)}") as mongodb:
        await mongodb.set_mode(Mode.REFUSE)
        environment["MONGO_URL"] = url.replace(address, mongodb.address)

        async def missing(service: str) -> set[str]:
            async with run_listening(service, environment) as (process, session):
                await _wait_until_alive(process, session)
                async with session.get("http://localhost/readyz") as answer:
                    assert answer.status == 503
                    names = set((await answer.json())["missing"])
                if await start.wait() == 0:
                    await mongodb.set_mode(Mode.PASS)
                await _wait_until_ready(process, session)
                return names & {"mongodb", "schema"}

        missing_stores = await asyncio.gather(*map(missing, services))
    assert missing_stores == [{"mongodb", "schema"}] * len(services)


async def _one_line(process: Program, service: str) -> str:
    """The error line of a service that did not start."""
    async with asyncio.timeout(LIMIT):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().startswith(f"{service}: ")
    assert errors.count(b"\n") == 1
    return errors.decode()


async def _wait_until_alive(process: Program, session: ClientSession) -> None:
    async def answers() -> bool:
        assert process.returncode is None, f"the service exited with {process.returncode}"
        try:
            async with session.get("http://localhost/livez"):
                return True
        except ClientConnectionError:
            return False

    await until(answers, timeout=LIMIT)


async def _wait_until_ready(process: Program, session: ClientSession) -> None:
    await _wait_until_alive(process, session)

    async def ready() -> bool:
        async with session.get("http://localhost/readyz") as answer:
            return answer.status == 200

    await until(ready, timeout=LIMIT)
