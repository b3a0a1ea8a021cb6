"""Each service starts alone, or before its stores, with settings from its environment, and stops on SIGTERM."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientConnectionError, ClientError, ClientSession, UnixConnector

from tests.support.processes.cluster import Cluster
from tests.support.processes.fork_server import Program, start_program
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port
from tests.support.servers.proxy import Mode, Proxy, run_proxy
from tests.support.servers.stores import REQUIRED_STORES, target_of, url_through
from tests.support.system.services import Services
from tests.support.wait import until

SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
KEYS = ("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY")
LIMIT = 60  # seconds; reached only when something hangs


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


async def test_each_service_runs_alone_and_stops_on_sigterm(environment: dict[str, str]) -> None:
    """The option `-s` prevents a fork, which would have the imports of all services."""

    async def run(service: str) -> int:
        path = f"{environment['LISTEN']}.{service}".removeprefix("unix:")
        own = {**environment, "LISTEN": f"unix:{path}"}
        async with run_service(service, own, "-s") as process, ClientSession(connector=UnixConnector(path)) as session:
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


async def test_an_address_in_use_stops_the_start_with_one_line(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment["LISTEN"] = f"127.0.0.1:{taken.getsockname()[1]}"
        async with run_service("gateway", environment) as process:
            assert "address already in use" in await _one_line(process, "gateway")


async def test_an_invalid_folder_stops_the_start_with_one_line(environment: dict[str, str]) -> None:
    environment["INSTALLERS"] = "/dev/null/installers"
    async with run_service("upload_service", environment) as process:
        assert "/dev/null/installers" in await _one_line(process, "upload_service")


async def test_a_bad_database_option_stops_the_start_with_one_line(
    environment: dict[str, str],
) -> None:
    environment["MONGO_URL"] = "mongodb://127.0.0.1,127.0.0.2/?directConnection=true"
    async with run_service("auth_service", environment) as process:
        assert "directConnection" in await _one_line(process, "auth_service")


async def test_a_service_starts_without_its_stores_and_names_them(environment: dict[str, str]) -> None:
    environment["MONGO_URL"] = "mongodb://127.0.0.1:9"

    async def missing(service: str) -> set[str]:
        path = f"{environment['LISTEN']}.{service}".removeprefix("unix:")
        own = {**environment, "LISTEN": f"unix:{path}"}
        async with run_service(service, own, "-s") as process, ClientSession(connector=UnixConnector(path)) as session:
            await _wait_until_alive(process, session)
            async with session.get("http://localhost/readyz") as answer:
                assert answer.status == 503
                return set((await answer.json())["missing"])

    services = [service for service in SERVICES if service != "gateway"]
    missing_stores = dict(zip(services, await asyncio.gather(*map(missing, services)), strict=True))
    assert {service: names & {"mongodb", "schema"} for service, names in missing_stores.items()} == {
        service: {"mongodb", "schema"} for service in services
    }


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


@dataclass(frozen=True)
class IsolatedServices:
    """A process of every service, and a proxy in front of each store."""

    session: ClientSession
    replicas: dict[str, Replica]
    links: dict[str, Proxy]

    async def missing(self, service: str) -> set[str] | None:
        """The missing dependencies that a service reports. None while it does not answer."""
        try:
            async with self.session.get(f"http://{self.replicas[service].address}/readyz") as answer:
                document = await answer.json()
        except (ClientError, OSError):
            return None
        assert answer.status == (503 if "missing" in document else 200)
        return set(document.get("missing", ()))

    async def wait_for_missing(self, service: str, stores: set[str]) -> None:
        """Wait until a service reports exactly these missing stores. It may report its schema too."""

        async def reports_stores() -> bool:
            missing = await self.missing(service)
            return missing is not None and missing & set(self.links) == stores and (bool(stores) or not missing)

        await until(reports_stores)


@pytest.fixture
async def isolated(cluster: Cluster) -> AsyncIterator[IsolatedServices]:
    stores = cluster.stores
    urls = {"mongodb": stores.mongod.url, "redis": stores.redis.url, "rabbitmq": stores.broker.url}
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())
        links = {name: await stack.enter_async_context(run_proxy(target_of(url))) for name, url in urls.items()}
        for link in links.values():
            await link.set_mode(Mode.REFUSE)
        proxied = {name: url_through(name, link) for name, link in links.items()}
        environment = {
            **cluster.environment,
            "MONGO_URL": proxied["mongodb"],
            "REDIS_URL": proxied["redis"],
            "RABBITMQ_URL": proxied["rabbitmq"],
        }
        replicas = {}
        for service in REQUIRED_STORES:
            log = stores.folder / f"alone-{service}.log"
            replicas[service] = Replica(service, f"127.0.0.1:{free_port()}", log, environment)
            stack.push_async_callback(replicas[service].stop)
            await replicas[service].start()
        yield IsolatedServices(session, replicas, links)


@pytest.mark.full  # test_single_services.py has a sample.
async def test_a_service_is_ready_when_the_last_store_is_reachable(isolated: IsolatedServices) -> None:
    pids = {service: replica.pid for service, replica in isolated.replicas.items()}
    unreachable = {"mongodb", "redis"}
    for name in ("", "rabbitmq", "redis", "mongodb"):
        if name:
            await isolated.links[name].set_mode(Mode.PASS)
            unreachable.discard(name)
        for service, needs in REQUIRED_STORES.items():
            await isolated.wait_for_missing(service, needs & unreachable)
    for service, replica in isolated.replicas.items():
        assert (replica.is_running, replica.pid) == (True, pids[service])
