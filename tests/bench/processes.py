"""The five services as processes of their own on real stores, and what each of them costs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, UnixConnector

from common.tenants import Tenant
from deploy.folder import Addresses
from deploy.operations import open_operator
from tests import servers
from tests.factories import KEY
from tests.ports import free_port

SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry")
PASSWORD = "a password for measurements"
TICKS = os.sysconf("SC_CLK_TCK")


def spent(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(frozen=True)
class Bench:
    """A tenant with a signed-in administrator, and the processes that answer."""

    session: ClientSession
    base_url: str
    processes: dict[str, int]
    installers: Path

    def cpu(self, service: str) -> float:
        """Seconds of processor time a service has used."""
        return spent(self.processes[service])

    def memory(self, service: str) -> int:
        """The bytes of memory that a service holds."""
        return self._status(service, "VmRSS")

    def largest_memory(self, service: str) -> int:
        """The most bytes of memory a service ever held."""
        return self._status(service, "VmHWM")

    def _status(self, service: str, name: str) -> int:
        status = Path(f"/proc/{self.processes[service]}/status").read_text(encoding="ascii")
        return int(status.partition(f"{name}:")[2].split()[0]) * 1024


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Bench]:
    """Start everything; nothing is left afterwards."""
    async with AsyncExitStack() as stack:
        mongo_url = await stack.enter_async_context(servers.mongo())
        redis_url = await stack.enter_async_context(servers.redis())
        rabbitmq_url = await stack.enter_async_context(servers.rabbitmq())
        sockets = {name: f"unix:{folder / name}.sock" for name in SERVICES}
        installers = folder / "installers"
        installers.mkdir()
        port = free_port()
        environment = {
            **dict.fromkeys(("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY"), KEY),
            **{f"{name.upper()}_URL": address for name, address in sockets.items()},
            "MONGO_URL": mongo_url,
            "REDIS_URL": redis_url,
            "RABBITMQ_URL": rabbitmq_url,
            "INSTALLERS": str(installers),
            "LOG_LEVEL": "warning",
            "ACCESS_LOG": "false",
        }
        processes = {}
        for name, listen in {**sockets, "gateway": f"127.0.0.1:{port}"}.items():
            processes[name] = await stack.enter_async_context(started(name, **environment, LISTEN=listen))
            await _ready(listen)
        async with open_operator(Addresses("", mongo_url, redis_url)) as operator:
            await operator.tenants.create(Tenant("bench"))
            await operator.users.create("bench", "admin", PASSWORD)
        session = await stack.enter_async_context(ClientSession(raise_for_status=True))
        base_url = f"http://127.0.0.1:{port}/bench"
        async with session.post(f"{base_url}/login", data={"username": "admin", "password": PASSWORD}) as answer:
            session.headers["Authorization"] = f"Bearer {(await answer.json())['message']}"
        yield Bench(session, base_url, processes, installers)


@asynccontextmanager
async def started(module: str, *arguments: str, **environment: str) -> AsyncIterator[int]:
    """A Python module as a process; its id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, env={**os.environ, **environment}
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def _ready(listen: str) -> None:
    unix = listen.startswith("unix:")
    connector = UnixConnector(listen.removeprefix("unix:")) if unix else None
    async with asyncio.timeout(60), ClientSession(connector=connector) as session:
        while True:
            try:
                async with session.get(f"http://{'localhost' if unix else listen}/readyz") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            await asyncio.sleep(0.1)
