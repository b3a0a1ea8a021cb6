"""The real servers, each started when the first test asks for it and stopped when the run ends."""

import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import structlog
from argon2 import PasswordHasher
from hypothesis import HealthCheck, settings

from common.concurrency.confined_process import run_confined
from common.redis import Redis, open_redis
from tests.support.processes import cluster_files
from tests.support.servers import start as servers
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.s3_program import S3Program
from tests.support.servers.shared_rabbitmq import SharedRabbitMQ, shared_url
from upload_service.inspection.model import MAGIC_LENGTH, MAGICS

TESTS = Path(__file__).parent
pytest_plugins = ["tests.support.app"]
# A slow machine fails no test, and each run has the same examples.
settings.register_profile(
    "busy", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
# The default renderer shows the locals of each frame, which takes a second for one logged exception.
RENDERER = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], RENDERER])
ASKED_FOR = {
    "system/deploy/test_compose*.py": "--containers",
    "test_kubernetes.py": "--control-plane",
    "test_kustomize.py": "--kustomize",
    "test_s3_server.py": "--s3",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--containers", action="store_true", help="test the compose file, with the engine of DOCKER_HOST")
    parser.addoption("--control-plane", action="store_true", help="apply the Kubernetes manifests to an API server")
    parser.addoption(
        "--kustomize", metavar="PROGRAM", help="test the Kubernetes manifests as this program renders them"
    )
    parser.addoption("--s3", metavar="PROGRAM", help="use this S3 server, minio or versitygw, in place of moto")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(cluster_files.IdleCluster())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SharedRabbitMQ())
        config.pluginmanager.register(cluster_files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what wants a program that not every machine has, unless it is asked for."""
    options = (option for name, option in ASKED_FOR.items() if collection_path.match(name))
    return True if any(not config.getoption(option) for option in options) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of one service before those of all: an event goes to one of those that share a queue."""
    items.sort(key=lambda item: {"browser": 1, "unit": 2}.get(item.path.relative_to(TESTS).parts[0], 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how long the tests of each folder took, in seconds over all processes of the run."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.split("/")[:2])] += report.duration
    if config.getoption("durations") is not None:
        terminalreporter.section("seconds of each folder")
        for folder, spent in sorted(seconds.items(), key=itemgetter(1), reverse=True):
            terminalreporter.write_line(f"{spent:8.1f}s {folder}")


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Passwords cost next to nothing, since every tenant has some; what they do cost is the subject of a few tests."""
    with pytest.MonkeyPatch.context() as patched:
        quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        patched.setattr("auth_service.users.service.PasswordHasher", lambda **_: quick)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_verification() -> Iterator[None]:
    """Verify the signature of one file of unknown format, in its process, for all: nearly every test uploads such."""
    outputs: dict[str, bytes] = {}

    async def run_once(module: str, *arguments: str, stdin: BinaryIO, **limits: Any) -> bytes:
        if os.pread(stdin.fileno(), MAGIC_LENGTH, 0).startswith(MAGICS):
            return await run_confined(module, *arguments, stdin=stdin, **limits)
        if module not in outputs:
            outputs[module] = await run_confined(module, *arguments, stdin=stdin, **limits)
        return outputs[module]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.inspection.process.run_confined", run_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let the programs of tests take SIGINT, which a shell ignores for what it runs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def timeout() -> Iterator[None]:
    """A service waits for its stores as long as a busy machine needs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("common.http.server.START_TIMEOUT", 60)
        patched.setattr("common.redis.ANSWER_TIMEOUT", 10)
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


@pytest.fixture(scope="module")
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    """A client of that Redis."""
    async with open_redis(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
async def rabbitmq_url(pytestconfig: pytest.Config) -> AsyncIterator[str]:
    """The URL of a RabbitMQ, for all tests: each takes names of its own."""
    if url := await shared_url(getattr(pytestconfig, "workerinput", {})):
        yield url
        return
    async with servers.rabbitmq() as url:
        yield url


@pytest.fixture(scope="session")
def new_object_server(pytestconfig: pytest.Config) -> Callable[[], ObjectServer]:
    """Creates S3-compatible object storages, not started: of moto, or of the program that `--s3` names."""
    program: str | None = pytestconfig.getoption("--s3")
    return partial(S3Program, program=program) if program else ObjectServer


@pytest.fixture(scope="session")
def object_server(new_object_server: Callable[[], ObjectServer]) -> Iterator[ObjectServer]:
    """An S3-compatible object storage with a bucket, for all tests: each takes a prefix of its own."""
    server = new_object_server()
    server.start()
    server.make_bucket()
    yield server
    server.remove()
