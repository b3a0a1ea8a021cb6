"""A rolling upgrade of the services behind one address, under load. Needs a container engine: `make test-compose`."""

import sys
from collections.abc import AsyncIterator
from contextlib import closing
from uuid import uuid4

import pytest
from docker import DockerClient

from tests.support.deployment.compose import SERVICES, STORES, ComposeProject, run_compose_with_tls
from tests.support.faults.callers import run_callers
from tests.support.system.services import Api

SCALE = dict.fromkeys(SERVICES, 2)


@pytest.fixture(scope="module")
async def project() -> AsyncIterator[ComposeProject]:
    repository = f"pkgrepo-test-upgrade-{uuid4().hex[:8]}"
    async with run_compose_with_tls({"PKGREPO_IMAGE": f"{repository}:test"}, **SCALE) as running:
        yield running
    with closing(DockerClient.from_env()) as engine:
        for image in engine.images.list(repository):
            for tag in image.tags:
                engine.images.remove(tag)


@pytest.fixture
async def front(project: ComposeProject) -> AsyncIterator[Api]:
    async with project.front() as api:
        yield api


async def test_a_rolling_upgrade_fails_no_request(project: ComposeProject, front: Api) -> None:
    services, stores = ids(project, *SERVICES), ids(project, *STORES)
    async with run_callers(front) as counting:
        output = await project.upgrade(COMMIT="first")
        requests = counting.requests.total()
    sys.stdout.write(f"{requests} requests, {counting.failures.total()} failed\n")
    assert (counting.failures, requests > 0) == ({}, True), output
    assert builds(project) == dict.fromkeys(SERVICES, ("first", "first"))
    assert set(services).isdisjoint(ids(project, *SERVICES))
    assert ids(project, *STORES) == stores


async def test_an_interrupted_upgrade_continues_when_it_is_run_again(project: ComposeProject, front: Api) -> None:
    async with run_callers(front) as counting:
        upgrade = await project.start_upgrade(COMMIT="second")
        assert upgrade.stdout is not None
        async for line in upgrade.stdout:
            if b"replacing" in line and b"catalog_service" in line:
                upgrade.kill()
        await upgrade.wait()
        interrupted = builds(project)
        await project.upgrade(COMMIT="second")
    assert interrupted["upload_service"] == ("second", "second")
    assert "second" not in interrupted["gateway"]
    assert builds(project) == dict.fromkeys(SERVICES, ("second", "second"))
    assert counting.failures == {}


async def test_up_after_a_rolling_upgrade_keeps_every_container(project: ComposeProject) -> None:
    await project.upgrade(COMMIT="second")
    before = ids(project, *SERVICES, *STORES)
    await project.up(COMMIT="second")
    assert ids(project, *SERVICES, *STORES) == before


async def test_a_new_image_of_the_services_keeps_the_stores_running(project: ComposeProject) -> None:
    before = ids(project, *STORES)
    await project.up("--build", COMMIT="third")
    assert builds(project) == dict.fromkeys(SERVICES, ("third", "third"))
    assert ids(project, *STORES) == before


def ids(project: ComposeProject, *services: str) -> list[str | None]:
    return [container.id for container in project.containers(*services)]


def builds(project: ComposeProject) -> dict[str, tuple[str, ...]]:
    """The commits of each service's containers."""
    label = "org.opencontainers.image.revision"
    return {name: tuple(container.labels[label] for container in project.containers(name)) for name in SERVICES}
