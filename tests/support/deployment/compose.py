"""Runs the compose file as a separate project, and inspects it through the engine's SDK."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession, TCPConnector
from docker import DockerClient
from docker.models.containers import Container

from common.auth.internal_tokens import Deployment
from tests.support.servers.ports import free_port
from tests.support.system.services import Api
from tests.support.wait import until

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "compose.yaml"
TLS = (FILE.with_name("compose.tls.yaml"), Path(__file__).with_name("compose.front.yaml"))
ROLLING_UPGRADE = FILE.with_name("rolling-upgrade")
SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
SCALE = {"gateway": 2, "catalog_service": 2, "upload_service": 3}
EXTERNAL_STORES = (
    FILE.with_name("compose.external-stores.yaml"),
    Path(__file__).with_name("compose.other-stores.yaml"),
)
TENANT = "main"
# Images that the test machine has. The variables of the environment come first.
STORE_IMAGES = {"MONGODB_IMAGE": "mongo:7", "REDIS_IMAGE": "redis:7", "RABBITMQ_IMAGE": "rabbitmq:4-management"}
STORE_URLS = {
    "mongodb": "mongodb://{}@{}:27017/?directConnection=true&authSource=admin",
    "redis": "redis://{}@{}:6379",
    "rabbitmq": "amqp://{}@{}:5672/",
}
STORES = ("mongodb", "redis", "rabbitmq")
UP_TIMEOUT = 900.0  # seconds, the image built and every container replaced
START_TIMEOUT = 120.0  # seconds
CA_CERTIFICATE = "/data/caddy/pki/authorities/local/root.crt"
CERTIFICATE = "/data/caddy/certificates/local/localhost/localhost.json"  # written last
READINESS_PROBE = (
    "import http.client as h; c = h.HTTPConnection('127.0.0.1', 9090, timeout=9); c.request('GET', '/readyz'); "
)
READINESS_PROBE += "print(c.getresponse().read().decode())"


class ComposeFailed(Exception):
    """The command failed; the text is its output."""


@dataclass(frozen=True)
class ComposeProject:
    """A running project. `files` override the first in this order; `variables` are their variables.

    `folder` has its secrets and its backups.
    """

    name: str
    engine: DockerClient
    folder: Path
    session: ClientSession
    scale: Mapping[str, int] = field(default_factory=lambda: SCALE)
    files: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    async def compose(self, *words: str, **variables: str) -> str:
        """Run a compose command on the project. Returns its output; raises ComposeFailed.

        `variables` are added to the project's variables for this command only.
        """
        return await self._output_of(*_command(), *words, **variables)

    async def upgrade(self, **variables: str) -> str:
        """Build the image, and replace one container after the other. Returns the output; raises ComposeFailed."""
        return await self._output_of(str(ROLLING_UPGRADE), "--build", **variables)

    async def start_upgrade(self, **variables: str) -> asyncio.subprocess.Process:
        """Start an upgrade; its output is a pipe."""
        return await self._start(str(ROLLING_UPGRADE), "--build", **variables)

    async def _output_of(self, *command: str, **variables: str) -> str:
        process = await self._start(*command, **variables)
        async with asyncio.timeout(UP_TIMEOUT):
            output = (await process.communicate())[0].decode()
        if process.returncode:
            raise ComposeFailed(output[-2000:])
        return output

    async def _start(self, *command: str, **variables: str) -> asyncio.subprocess.Process:
        project = {
            "COMPOSE_FILE": os.pathsep.join(map(str, (FILE, *self.files))),
            "COMPOSE_PROJECT_NAME": self.name,
            "PKGREPO_SECRETS": str(self.secrets),
            "PKGREPO_BACKUPS": str(self.folder / "backups"),
        }
        return await asyncio.create_subprocess_exec(
            *command,
            env={**STORE_IMAGES, **os.environ, **self.variables, **project, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run_operator(self, *words: str, **variables: str) -> str:
        """Run an operator command. Returns its output; raises ComposeFailed."""
        return await self.compose("run", "--rm", "--no-TTY", "operator", *words, **variables)

    async def start_stores(self, *others: str) -> None:
        """Start MongoDB, Redis and the `others` without the services, for a restore."""
        await self.compose("up", "--detach", "--wait", "mongodb", "redis", *others)
        await self.compose("run", "--rm", "--no-TTY", "mongodb-user")

    async def renew_passwords(self, *options: str) -> None:
        """Change the passwords of the stores as the guide says, without restarts. `options` may be --finish."""
        words = ("pkgrepo", "cluster", "passwords", "--folder", "/secrets", *options)
        await self.compose("run", "--rm", "--no-TTY", "--no-deps", "secrets", *words)
        await self.compose("run", "--rm", "--no-TTY", "--no-deps", "mongodb-user")
        reload = "REDISCLI_AUTH=$(cut -d: -f2 /run/secrets/administrator) redis-cli --user administrator acl load"
        assert (await self.compose("exec", "-T", "redis", "sh", "-c", reload)).strip() == "OK"
        definitions = "/run/secrets/definitions.json"
        await self.compose("exec", "-T", "rabbitmq", "rabbitmqctl", "import_definitions", definitions)

    def store_url(self, store: str, credential: str) -> str:
        """A store's URL on its own network, which this machine reaches. `credential` is `name:password`."""
        [container] = self.containers(store)
        [network] = container.attrs["NetworkSettings"]["Networks"].values()
        return STORE_URLS[store].format(credential, network["IPAddress"])

    async def up(self, *options: str, **variables: str) -> None:
        replicas = {**dict.fromkeys(SERVICES, 1), **self.scale}
        scale = [word for service, count in replicas.items() for word in ("--scale", f"{service}={count}")]
        await self.compose("up", "--detach", "--wait", *options, *scale, **variables)

    def containers(self, *services: str) -> list[Container]:
        """The running replicas of these services, ordered by replica number."""
        return [container for service in services for container in self._replicas(service)]

    def _replicas(self, service: str) -> list[Container]:
        labels = [f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}"]
        containers: list[Container] = self.engine.containers.list(filters={"label": labels})
        return sorted(containers, key=lambda container: container.name or "")

    def addresses(self) -> list[str]:
        """The addresses of the gateways."""
        bound = [(container.ports["8080/tcp"] or [])[0] for container in self.containers("gateway")]
        return [f"http://127.0.0.1:{port['HostPort']}" for port in bound]

    async def readiness(self, container: Container) -> dict[str, Any]:
        """The response of a service's readiness probe. Empty if there is none."""
        output = await _output_of(container, "python", "-c", READINESS_PROBE)
        return dict(json.loads(output)) if output else {}

    async def ready(self, *containers: Container) -> None:
        """Wait until these services are ready."""

        async def all_ready() -> bool:
            return all([(await self.readiness(container)).get("status") == "ready" for container in containers])

        await until(all_ready, timeout=START_TIMEOUT)

    async def trust(self) -> ssl.SSLContext:
        """The trust in Caddy's own authority, when its certificate is there."""
        [caddy] = self.containers("caddy")

        async def has_certificate() -> bool:
            return bool(await _output_of(caddy, "cat", CERTIFICATE))

        await until(has_certificate)
        return ssl.create_default_context(cadata=await _output_of(caddy, "cat", CA_CERTIFICATE))

    @asynccontextmanager
    async def front(self) -> AsyncIterator[Api]:
        """The first administrator, through Caddy and its certificate."""
        base = f"https://localhost:{self.variables['FRONT_PORT']}/{TENANT}"
        password = (self.secrets / "administrator" / "password").read_text()
        async with ClientSession(connector=TCPConnector(ssl=await self.trust())) as session:
            yield await Api(session, base, TENANT, Deployment.MULTI).signed_in(password=password)

    async def signed_in(self) -> list[Api]:
        """The first administrator at each gateway, with one session."""
        password = (self.secrets / "administrator" / "password").read_text()
        apis = [Api(self.session, f"{base}/{TENANT}", TENANT, Deployment.MULTI) for base in self.addresses()]
        first = await apis[0].signed_in(password=password)
        return [Api(api.session, api.base_url, TENANT, Deployment.MULTI, first.headers) for api in apis]

    def settings_of(self, container: Container) -> Mapping[str, object]:
        """The host configuration of a container, with its limits."""
        container.reload()
        settings: dict[str, object] = container.attrs["HostConfig"]
        return settings


@asynccontextmanager
async def run_compose(variables: Mapping[str, str] | None = None, **scale: int) -> AsyncIterator[ComposeProject]:
    """Start the scaled project. Removes it with its volumes at the end."""
    async with _project(scale or SCALE, variables=variables) as project:
        yield project


@asynccontextmanager
async def copy_of(project: ComposeProject) -> AsyncIterator[ComposeProject]:
    """A project with another name and copies of the secrets and backups. No container runs yet."""
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        command = ("cp", "--archive", str(project.secrets), str(project.folder / "backups"), folder)
        await asyncio.to_thread(subprocess.run, command, check=True)
        copy = replace(project, name=f"{project.name}-copy", folder=Path(folder), scale={})
        try:
            yield copy
        finally:
            await copy.compose("down", "--volumes", "--timeout", "20")


@asynccontextmanager
async def run_compose_with_tls(
    variables: Mapping[str, str] | None = None, /, **scale: int
) -> AsyncIterator[ComposeProject]:
    """Start the project behind Caddy, which listens on a loopback port."""
    front = {"PKGREPO_HOST": "localhost", "PKGREPO_TLS": "tls internal", "FRONT_PORT": str(free_port())}
    async with _project(scale, TLS, {**front, **(variables or {})}) as project:
        yield project


@asynccontextmanager
async def run_compose_with_external_stores() -> AsyncIterator[ComposeProject]:
    """Start the project on stores of another project."""
    async with _project(start=_start_all_stores) as other:

        def write_addresses(folder: Path) -> None:
            folder.mkdir()
            command = ("cp", "--archive", str(other.secrets / "urls"), str(folder))
            subprocess.run(command, check=True)

        variables = {"STORES_PROJECT": other.name, "STORES_CERTIFICATES": str(other.folder)}
        async with _project(files=EXTERNAL_STORES, variables=variables, write_secrets=write_addresses) as project:
            yield project


async def _start_all_stores(project: ComposeProject) -> None:
    await project.compose("up", "--detach", "--build", "secrets")
    await project.start_stores("rabbitmq")


async def _start(project: ComposeProject) -> None:
    await project.up("--build")


@asynccontextmanager
async def _project(
    scale: Mapping[str, int] = MappingProxyType({}),
    files: tuple[Path, ...] = (),
    variables: Mapping[str, str] | None = None,
    write_secrets: Callable[[Path], None] = lambda _: None,
    start: Callable[[ComposeProject], Awaitable[None]] = _start,
) -> AsyncIterator[ComposeProject]:
    engine = DockerClient.from_env()
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with ClientSession() as session:
            name = f"pkgrepo{uuid4().hex[:8]}"
            project = ComposeProject(name, engine, Path(folder), session, scale, files, variables or {})
            write_secrets(project.secrets)
            try:
                await start(project)
                yield project
            finally:
                await project.compose("down", "--volumes", "--timeout", "20")
                engine.close()


def _command() -> tuple[str, ...]:
    standalone = shutil.which("docker-compose")
    return (standalone,) if standalone else ("docker", "compose")


async def _output_of(container: Container, *words: str) -> str:
    """The output of a command in a container; empty if it fails."""
    result = await asyncio.to_thread(container.exec_run, list(words))
    assert isinstance(result.output, bytes)
    return result.output.decode() if result.exit_code == 0 else ""
