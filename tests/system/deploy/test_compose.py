"""The services in containers with several replicas. Needs a container engine: `make test-compose`."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import encode_basic_auth
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from deploy.cluster.rights import RABBITMQ
from deploy.cluster.secrets import ClusterSecrets
from tests.support.deployment.compose import SCALE, SERVICES, STORES, ComposeProject, run_compose
from tests.support.servers.rights import EVERY_USER, excess_rights
from tests.support.system.publishing import add_package, download, package_id, publish
from tests.support.tables import each


@pytest.fixture(scope="module")
async def project() -> AsyncIterator[ComposeProject]:
    async with run_compose() as running:
        yield running


async def test_the_requested_replicas_run(project: ComposeProject) -> None:
    assert {service: len(project.containers(service)) for service in SCALE} == SCALE


async def test_a_write_through_one_gateway_is_visible_at_another(project: ComposeProject) -> None:
    first, other = await project.signed_in()
    name = package_id()
    await add_package(first, name)
    published = await publish(first, name, content=os.urandom(3 << 20))
    [row] = (await other.call("GET", "get_package_versions", name)).body
    assert (row["UID"], row["INSTALLER_SHA256"]) == (published.uid, published.sha256)
    assert name in [row["PACKAGE_ID"] for row in (await other.call("POST", "get_packages")).body]
    assert await download(other, row["INSTALLER_URL"]) == published.content
    assert (await other.call("DELETE", "delete_package", name)).status == 200
    assert (await first.call("GET", "get_package_versions", name)).status == 404


@pytest.mark.parametrize("service", [*SERVICES, *STORES])
async def test_a_container_has_no_more_rights_than_it_needs(project: ComposeProject, service: str) -> None:
    for container in project.containers(service):
        settings = project.settings_of(container)
        assert settings["CapDrop"] == ["ALL"]
        assert settings["SecurityOpt"] == ["no-new-privileges:true"]
        assert container.attrs["Config"]["User"] not in {"", "0", "root", "0:0"}
        assert bool(container.ports.get("8080/tcp")) is (service == "gateway")
        if service in SERVICES:
            assert settings["ReadonlyRootfs"]


@pytest.mark.parametrize(
    ("service", "store"), [("gateway", "mongodb"), ("auth_service", "rabbitmq"), ("upload_service", "redis")]
)
async def test_a_service_has_no_network_access_to_other_stores(
    project: ComposeProject, service: str, store: str
) -> None:
    look = f"import socket; socket.getaddrinfo({store!r}, 80)"
    container = project.containers(service)[0]
    result = await asyncio.to_thread(container.exec_run, ["python", "-c", look])
    assert (result.exit_code, b"gaierror" in result.output) == (1, True)


async def test_a_second_up_changes_nothing(project: ComposeProject) -> None:
    before = {file: file.read_bytes() for file in project.secrets.rglob("*") if file.is_file()}
    ids = {container.id for service in SERVICES for container in project.containers(service)}
    await project.up("--build")
    assert {file: file.read_bytes() for file in project.secrets.rglob("*") if file.is_file()} == before
    assert {container.id for service in SERVICES for container in project.containers(service)} == ids


def url(project: ComposeProject, store: str, user: str) -> str:
    [credential] = [row for row in ClusterSecrets(project.secrets).credentials(store) if row.user == user]
    return project.store_url(store, str(credential))


@each(("store", "user"), EVERY_USER)
async def test_a_user_has_access_to_the_data_of_its_service_only(
    project: ComposeProject, store: str, user: str
) -> None:
    assert await excess_rights(store, url(project, store, user), user) == []


@each("user", RABBITMQ)
async def test_rabbitmq_lets_no_user_manage_the_broker(project: ComposeProject, user: str) -> None:
    broker = urlsplit(url(project, "rabbitmq", user))
    headers = {"Authorization": encode_basic_auth(broker.username or "", broker.password or "")}
    async with project.session.get(f"http://{broker.hostname}:15672/api/overview", headers=headers) as answer:
        assert answer.status == 401


async def test_redis_rejects_a_caller_without_a_user(project: ComposeProject) -> None:
    address = urlsplit(url(project, "redis", "gateway")).hostname
    client: Any = Redis.from_url(f"redis://{address}:6379")
    async with client:
        with pytest.raises(AuthenticationError):
            await client.ping()
