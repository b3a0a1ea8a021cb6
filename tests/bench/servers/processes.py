"""The five services as separate processes on real stores, and the costs of each."""

import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aiohttp import ClientSession, ClientTimeout

from common.tenants import Tenant
from deploy.local.folder import Addresses
from deploy.operator.tenants import Operator, open_operator
from tests.support.factories import KEY
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port
from tests.support.servers.stores import Stores

SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry")
PASSWORD = "a password for measurements"
MIB = 1 << 20
TIMEOUT = 300.0  # seconds for one request
MAX_LOG_TEXT = 400  # characters of a service's last log line in an error

Result = TypeVar("Result")


@dataclass(frozen=True)
class Process:
    """A measured process."""

    pid: int

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds of all its threads."""
        return time.clock_gettime((~self.pid << 3) | 2)  # The clock id of clock_getcpuclockid.

    @property
    def memory(self) -> int:
        """Its current memory in bytes."""
        return self._status("VmRSS")

    @property
    def largest_memory(self) -> int:
        """Its peak memory in bytes."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition(f"{name}:")[2].split()[0]) * 1024


async def measure_costs(processes: Mapping[str, Process], work: Awaitable[Result]) -> tuple[dict[str, float], Result]:
    """Await some work. Returns the CPU seconds of each process, and the result."""
    before = {name: process.cpu_seconds for name, process in processes.items()}
    result = await work
    return {name: processes[name].cpu_seconds - was for name, was in before.items()}, result


@dataclass(frozen=True)
class Account:
    """A tenant's address, with the header of its administrator."""

    tenant_id: str
    base_url: str
    bearer: tuple[str, str]


@dataclass(frozen=True)
class Bench:
    """The services of one part, and the accounts of its tenants."""

    processes: Mapping[str, Process]
    address: str
    stores: Stores
    operator: Operator
    session: ClientSession
    stack: AsyncExitStack
    settings: Mapping[str, str] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)

    async def account(self, tenant_id: str) -> Account:
        """The account of a tenant, which is created if necessary."""
        if tenant_id in self.accounts:
            return self.accounts[tenant_id]
        if tenant_id not in {tenant.tenant_id for tenant in await self.operator.tenants.list()}:
            await self.operator.tenants.create(Tenant(tenant_id))
            await self.operator.users.create(tenant_id, "admin", PASSWORD)
        base_url = f"{self.address}/{tenant_id}"
        async with self.session.post(f"{base_url}/login", data={"username": "admin", "password": PASSWORD}) as answer:
            token = (await answer.json())["message"]
        self.accounts[tenant_id] = Account(tenant_id, base_url, ("Authorization", f"Bearer {token}"))
        return self.accounts[tenant_id]

    async def replica(self, service: str) -> tuple[Process, str]:
        """Start another process of a service on a port. Returns it and its address."""
        address = f"127.0.0.1:{free_port()}"
        replica = await self.stack.enter_async_context(
            start_service(service, address, self.stores, settings=self.settings)
        )
        await replica.ready()
        return Process(replica.pid), f"http://{address}"


@asynccontextmanager
async def run_services(
    stores: Stores, settings: Mapping[str, str] | None = None, *, gateway: Sequence[str] = ("gateway",)
) -> AsyncIterator[Bench]:
    """Run the five services.

    `settings` are further variables of all, `gateway` is the gateway's module with its arguments. The last log
    line of each service is added to an exception of the block. Raises NotStarted with the end of the log.
    """
    async with AsyncExitStack() as stack:
        environment, settings = _environment(stores), settings or {}
        address = f"127.0.0.1:{free_port()}"
        listening = {**{name: environment[f"{name.upper()}_URL"] for name in SERVICES}, "gateway": address}
        commands = {"gateway": (sys.executable, "-m", *gateway)}
        replicas = {
            name: await stack.enter_async_context(start_service(name, listen, stores, commands.get(name, ()), settings))
            for name, listen in listening.items()
        }
        for replica in replicas.values():
            await replica.ready()
        processes = {name: Process(replica.pid) for name, replica in replicas.items()}
        operator = await stack.enter_async_context(open_operator(Addresses("", stores.mongo_url, stores.redis_url)))
        session = await stack.enter_async_context(ClientSession(raise_for_status=True, timeout=ClientTimeout(TIMEOUT)))
        try:
            yield Bench(processes, f"http://{address}", stores, operator, session, stack, settings)
        except Exception as error:
            for name in processes:
                for line in (stores.folder / f"{name}.log").read_text(errors="replace").splitlines()[-1:]:
                    error.add_note(f"last log line of {name}: {line[:MAX_LOG_TEXT]}")
            raise


@asynccontextmanager
async def start_service(
    name: str, listen: str, stores: Stores, command: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> AsyncIterator[Replica]:
    """Run a service as a process. Its log is in the folder of the stores."""
    environment = {**_environment(stores), **(settings or {})}
    replica = Replica(name, listen, stores.folder / f"{name}.log", environment, command)
    await replica.start()
    try:
        yield replica
    finally:
        await replica.kill()  # A graceful stop would take seconds.


def _environment(stores: Stores) -> dict[str, str]:
    return {
        **os.environ,
        **dict.fromkeys(("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY"), KEY),
        **{f"{name.upper()}_URL": f"unix:{stores.folder / name}.sock" for name in SERVICES},
        "MONGO_URL": stores.mongo_url,
        "REDIS_URL": stores.redis_url,
        "RABBITMQ_URL": stores.rabbitmq_url,
        "INSTALLERS": str(stores.installers),
        "LOG_LEVEL": "warning",
        "ACCESS_LOG": "false",
    }
