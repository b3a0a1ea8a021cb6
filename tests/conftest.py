"""The real servers, each started when the first test asks for it and stopped when the run ends."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from hypothesis import settings

from tests import servers
from tests.objects import ObjectServer

TESTS = Path(__file__).parent
pytest_plugins = ["tests.attacks", "tests.running"]
settings.register_profile("busy", deadline=None)  # How long an example takes is the machine's doing.
settings.load_profile("busy")
ASKED_FOR = {
    "test_compose.py": "--containers",
    "test_compose_front.py": "--containers",
    "test_compose_operator.py": "--containers",
    "test_compose_stores.py": "--containers",
    "test_kustomize.py": "--kustomize",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--containers", action="store_true", help="test the compose file, with the engine of DOCKER_HOST")
    parser.addoption(
        "--kustomize", metavar="PROGRAM", help="test the Kubernetes manifests as this program renders them"
    )
    parser.addoption("--full", action="store_true", help="shorten nothing: see the README on `make test-full`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what wants a program that not every machine has, unless it is asked for."""
    option = ASKED_FOR.get(collection_path.name)
    return True if option and not config.getoption(option) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the browser's tests for the end, as those of the system are: a service's take the events for themselves."""
    items.sort(key=lambda item: {"browser": 1, "unit": 2}.get(item.path.relative_to(TESTS).parts[0], 0))


@pytest.fixture(scope="session", autouse=True)
def quick_passwords(pytestconfig: pytest.Config) -> Iterator[None]:
    """Passwords cost next to nothing, since every tenant has some; what they do cost is the subject of a few tests."""
    with pytest.MonkeyPatch.context() as patched:
        if not pytestconfig.getoption("--full"):
            quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
            patched.setattr("auth_service.passwords.PasswordHasher", lambda **_: quick)
        yield


@pytest.fixture(scope="session")
async def mongo_url() -> AsyncIterator[str]:
    """The URL of a MongoDB replica set, for all tests: each takes a database of its own."""
    async with servers.mongo() as url:
        yield url


@pytest.fixture(scope="session")
async def redis_url() -> AsyncIterator[str]:
    """The URL of a Redis, for all tests: each takes keys of its own."""
    async with servers.redis() as url:
        yield url


@pytest.fixture(scope="session")
async def rabbitmq_url() -> AsyncIterator[str]:
    """The URL of a RabbitMQ, for all tests: each takes names of its own."""
    async with servers.rabbitmq() as url:
        yield url


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3-compatible object storage with a bucket, for all tests: each takes a prefix of its own."""
    server = ObjectServer()
    server.start()
    server.make_bucket()
    yield server
    server.stop()
