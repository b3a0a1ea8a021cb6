"""Operator commands in containers during load. Needs a container engine: `make test-compose`."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from uuid import uuid4

import pytest
from docker import DockerClient
from yarl import URL

from deploy.cluster.secrets import SERVICES_USER
from tests.support.deployment.compose import STORE_IMAGES, STORES, ComposeProject, copy_of, run_compose
from tests.support.faults.callers import CountingApi, run_callers
from tests.support.system.publishing import add_package, download, package_id, publish, version_of
from tests.support.system.services import Api
from tests.support.wait import until

CHUNK = 1 << 20  # bytes


@pytest.fixture(scope="module")
def store_images() -> Iterator[dict[str, str]]:
    """The tags of the store images in this test run, by variable name."""
    engine, run = DockerClient.from_env(), uuid4().hex[:8]
    tags = {name: f"pkgrepo-test-{name.partition('_')[0].lower()}:{run}" for name in STORE_IMAGES}
    for name, tag in tags.items():
        engine.images.get(os.environ.get(name, STORE_IMAGES[name])).tag(tag)
    yield tags
    for tag in tags.values():
        engine.images.remove(tag)
    engine.close()


@pytest.fixture(scope="module")
async def project(store_images: dict[str, str]) -> AsyncIterator[ComposeProject]:
    async with run_compose(store_images, gateway=2) as running:
        yield running


@dataclass(frozen=True)
class Rotation:
    """A complete key rotation under load, with a session and a download address from before."""

    failures: Counter[str]
    failures_of_the_end: Counter[str]
    earlier_session: Api
    earlier_address: str


@pytest.fixture(scope="module")
async def rotation(project: ComposeProject) -> Rotation:
    """A shared rotation, because client keys can rotate again only after every client has called."""
    earlier, name = await project.signed_in(), package_id()
    await add_package(earlier[0], name)
    address = (await version_of(earlier[0], await publish(earlier[0], name)))["INSTALLER_URL"]
    async with load(earlier) as clients:
        await project.run_operator("keys", "rotate", "--folder", "/keys")
    async with load(await project.signed_in()) as later_clients:
        await project.run_operator("keys", "rotate", "--folder", "/keys", "--finish")
    return Rotation(failures(clients), failures(later_clients), earlier[0], address)


@pytest.fixture
async def gateways(project: ComposeProject) -> list[Api]:
    """The first administrator at each gateway."""
    return await project.signed_in()


async def test_an_operator_command_with_newer_images_keeps_the_stores_running(
    project: ComposeProject, gateways: list[Api], store_images: dict[str, str]
) -> None:
    before = [container.id for container in project.containers(*STORES)]
    for tag in store_images.values():
        await asyncio.to_thread(replace_image, project.engine, tag)
    async with load(gateways) as clients:
        await project.run_operator("tenant", "list", MONGODB_CACHE_GB="0.6")
    assert failures(clients) == {}
    assert [container.id for container in project.containers(*STORES)] == before


async def test_a_key_rotation_and_its_end_fail_no_request(rotation: Rotation) -> None:
    assert (rotation.failures, rotation.failures_of_the_end) == ({}, {})


async def test_finishing_a_key_rotation_voids_earlier_sessions_and_links(rotation: Rotation) -> None:
    async def has_ended() -> bool:
        session = await rotation.earlier_session.call("GET", "test")
        async with rotation.earlier_session.session.get(URL(rotation.earlier_address, encoded=True)) as download:
            return (session.status, download.status) == (401, 403)

    await until(has_ended)


async def test_first_start_makes_the_backup_folder_for_the_services_user(project: ComposeProject) -> None:
    status = (project.folder / "backups").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (SERVICES_USER, SERVICES_USER, 0o700)


async def test_backup_restores_into_an_empty_project_of_another_name(
    project: ComposeProject, gateways: list[Api]
) -> None:
    api, name = gateways[0], package_id()
    await add_package(api, name)
    published = await publish(api, name, content=os.urandom(3 * CHUNK))
    client = (await api.call("POST", "add_client", data={"client_name": f"{name}.example"})).body
    log = await project.run_operator("audit", "verify", "--tenant", "main")
    head = next(line for line in log.splitlines() if line.startswith("main: ")).rpartition(" ")[2]
    assert "was created" in await project.run_operator("backup", "/backups")
    async with copy_of(project) as drill:
        await drill.start_stores()
        assert "was restored" in await drill.run_operator("restore", "/backups")
        await drill.up()
        await drill.run_operator("quota")
        await drill.run_operator("scrub")
        await drill.run_operator("audit", "verify", "--tenant", "main", "--expect", head)
        [restored] = await drill.signed_in()
        assert await download(restored, (await version_of(restored, published))["INSTALLER_URL"]) == published.content
        form = {"auth_token": client["auth_token"], "client": "1"}
        packages = (await restored.anonymous().call("POST", "get_packages", data=form)).body
        assert name in [package["PACKAGE_ID"] for package in packages]


@asynccontextmanager
async def load(gateways: list[Api]) -> AsyncIterator[list[CountingApi]]:
    """Send requests of clients through every gateway within the block, at least one per client."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(run_callers(api)) for api in gateways]
        before = [client.requests.total() for client in clients]

        async def has_load() -> bool:
            return all(client.requests.total() > total for client, total in zip(clients, before, strict=True))

        yield clients
        await until(has_load)


def failures(clients: list[CountingApi]) -> Counter[str]:
    return sum((client.failures for client in clients), Counter())


def replace_image(engine: DockerClient, tag: str) -> None:
    """Tag another image that differs only in a label."""
    engine.images.build(fileobj=BytesIO(f"FROM {tag}\nLABEL newer={uuid4().hex}\n".encode()), tag=tag)
