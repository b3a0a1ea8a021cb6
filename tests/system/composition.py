"""The compose file, brought up in a project of its own by the engine's own command, and looked at through its SDK."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from aiohttp import ClientSession
from docker import DockerClient
from docker.models.containers import Container

from common.caller import Deployment
from tests.system.services import Api

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "compose.yaml"
SCALE = {"gateway": 2, "catalog_service": 2, "upload_service": 3}
TENANT = "main"
UP_WITHIN = 300.0  # seconds, the image built


class ComposeFailed(Exception):
    """The command ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Composition:
    """A running project."""

    name: str
    engine: DockerClient
    secrets: Path
    session: ClientSession

    async def compose(self, *words: str) -> str:
        """Let the engine's command do something with the project; what it says. Raises ComposeFailed."""
        environment = {**os.environ, "PKGREPO_SECRETS": str(self.secrets)}
        process = await asyncio.create_subprocess_exec(
            *(*_command(), "-p", self.name, "-f", str(FILE), *words),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(UP_WITHIN):
            said = (await process.communicate())[0].decode()
        if process.returncode:
            raise ComposeFailed(said[-2000:])
        return said

    async def up(self) -> None:
        scale = [word for service, count in SCALE.items() for word in ("--scale", f"{service}={count}")]
        await self.compose("up", "--detach", "--build", "--wait", "--pull", "missing", *scale)

    def containers(self, service: str) -> list[Container]:
        """The running replicas of a service, in the order of their numbers."""
        labels = [f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}"]
        found: list[Container] = self.engine.containers.list(filters={"label": labels})
        return sorted(found, key=lambda container: container.name or "")

    def addresses(self) -> list[str]:
        """Where the gateways answer."""
        bound = [(container.ports["8080/tcp"] or [])[0] for container in self.containers("gateway")]
        return [f"http://127.0.0.1:{port['HostPort']}" for port in bound]

    async def signed_in(self) -> list[Api]:
        """The first administrator at each gateway, in one session."""
        password = (self.secrets / "administrator" / "password").read_text()
        apis = [Api(self.session, f"{base}/{TENANT}", TENANT, Deployment.MULTI) for base in self.addresses()]
        first = await apis[0].signed_in(password=password)
        return [Api(api.session, api.base_url, TENANT, Deployment.MULTI, first.headers) for api in apis]

    def settings_of(self, container: Container) -> Mapping[str, object]:
        """What the engine holds a container to."""
        container.reload()
        settings: dict[str, object] = container.attrs["HostConfig"]
        return settings


@asynccontextmanager
async def composition() -> AsyncIterator[Composition]:
    """The project, up and scaled; removed with its volumes at the end."""
    engine = DockerClient.from_env()
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with ClientSession() as session:
            project = Composition(f"pkgrepo{uuid4().hex[:8]}", engine, Path(folder), session)
            try:
                await project.up()
                yield project
            finally:
                await project.compose("down", "--volumes", "--timeout", "20")
                engine.close()


def _command() -> tuple[str, ...]:
    alone = shutil.which("docker-compose")
    return (alone,) if alone else ("docker", "compose")
