"""catalog_service alone, asked at its own door; beside it nginx and a bare handler that answer the same bytes."""

import os
import random
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from catalog_service.model import Package
from catalog_service.store import INDEXES
from common.caller import INTERNAL_TOKEN, Caller, sign
from common.mongo import Document, MongoDatabase, make_indexes, open_database, unhurried
from tests import servers
from tests.bench.reading import Request
from tests.factories import KEY
from tests.ports import answering, free_port
from tests.system.replica import Replica

VERSIONS = 3
TICKS = os.sysconf("SC_CLK_TCK")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class Server:
    """A process that answers on a port of loopback."""

    process: Replica
    port: int

    @property
    def spent(self) -> float:
        """Seconds of processor time that it has used."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS

    @property
    def largest_memory(self) -> int:
        """The most bytes that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def get(self, path: str) -> Request:
        return Request(self.port, "GET", path, {})


@dataclass(frozen=True)
class Alone:
    """All of them; nginx is there once with `sendfile` and once without, or not at all. `file` is what it serves."""

    service: Server
    bare: Server
    nginx: dict[str, Server]
    file: Path
    database: MongoDatabase

    def catalog(self, caller: Caller, **headers: str) -> Request:
        token = sign(KEY, caller, service="catalog_service", operation="get_packages")
        path = f"/{caller.tenant_id}/get_packages"
        return Request(self.service.port, "POST", path, {INTERNAL_TOKEN: token, **headers})

    async def seed(self, tenant_id: str, packages: int, logo: int) -> None:
        """Write the documents as the stores do: through the interface it takes longer than all that is measured."""
        chance = random.Random(packages)  # noqa: S311  noise that is the same each time
        for start in range(0, packages, 500):
            numbers = range(start, min(start + 500, packages))
            found = [_package(tenant_id, number, chance.randbytes(logo)) for number in numbers]
            with unhurried():
                await self.database["packages"].insert_many(found)
                await self.database["versions"].insert_many(
                    [version for number in numbers for version in _versions(tenant_id, number)]
                )


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Alone]:
    """Start everything; nothing is left afterwards."""
    file = folder / "www" / "catalog"
    file.parent.mkdir()
    file.write_bytes(b"")
    async with AsyncExitStack() as stack:
        mongo_url = await stack.enter_async_context(servers.mongo())
        database = await stack.enter_async_context(open_database(mongo_url, "catalog"))
        await make_indexes(database, INDEXES)
        environment = {
            **os.environ,
            "INTERNAL_KEY": KEY,
            "DOWNLOAD_KEY": KEY,
            "MONGO_URL": mongo_url,
            "RABBITMQ_URL": f"amqp://guest:guest@127.0.0.1:{free_port()}/",  # Nobody is there, and nothing comes.
            "LOG_LEVEL": "error",
            "ACCESS_LOG": "false",
        }

        async def start(name: str, port: int, *command: str) -> Server:
            process = Replica(name, f"127.0.0.1:{port}", folder / f"{name}.log", environment, command)
            await process.start()
            stack.push_async_callback(process.stop)
            await answering(port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1")
            return Server(process, port)

        service = await start("catalog_service", free_port())
        await service.process.ready()
        port = free_port()
        bare = await start("bare", port, sys.executable, "-m", "tests.bench.bare", str(port), str(file))
        nginx = {}
        if program := shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"):
            for sendfile in ("off", "on"):
                port = free_port()
                configuration = _nginx(folder, port, sendfile)
                nginx[sendfile] = await start(f"nginx-{sendfile}", port, program, "-c", str(configuration))
        yield Alone(service, bare, nginx, file, database)


def _nginx(folder: Path, port: int, sendfile: str) -> Path:
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in TEMPORARY)
    configuration = folder / f"nginx-{sendfile}.conf"
    configuration.write_text(
        f"daemon off; master_process off; user root; pid {folder}/nginx-{sendfile}.pid; error_log {folder}/nginx.log;"
        f"events {{}} http {{ access_log off; sendfile {sendfile}; keepalive_requests 1000000; {temporary}"
        f"server {{ listen 127.0.0.1:{port}; root {folder}/www; }} }}",
        encoding="ascii",
    )
    return configuration


def _package(tenant_id: str, number: int, logo: bytes) -> Document:
    package = Package(
        package_id=package_id(number),
        package_uid=str(uuid4()),
        name=f"Package {number}",
        publisher="Bench",
        description="What it is for, in a line.",
        logo=logo,
    )
    return {"tenant_id": tenant_id, "halfway": False, **vars(package)}


def _versions(tenant_id: str, number: int) -> Iterator[Document]:
    for version in range(VERSIONS):
        yield {
            "tenant_id": tenant_id,
            "uid": str(uuid4()),
            "package_id": package_id(number),
            "version": f"1.{version}",
            "version_key": f"1.{version}",
            "installer_key": f"1.{version}",
            "state": "active",
            "halfway": False,
        }


def package_id(number: int) -> str:
    return f"Bench.Package.{number:06}"
