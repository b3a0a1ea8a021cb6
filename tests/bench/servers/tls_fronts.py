"""Servers with TLS: a bare handler as the reference, `pkgrepo up --tls`, and Caddy with the product's own Caddyfile."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from deploy.local.folder import Addresses
from deploy.operator.tenants import open_operator
from tests.bench.callers.machines import winget_context
from tests.bench.scale import Run
from tests.bench.servers.processes import TIMEOUT, Bench, Process, run_services
from tests.support.processes.pkgrepo_command import run_pkgrepo
from tests.support.processes.replica import Replica
from tests.support.servers.certificates import make_certificate
from tests.support.servers.ports import free_port, wait_for_port

CADDYFILE = Path(__file__).parents[3] / "deploy" / "Caddyfile"
CADDY_OPTIONS = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"


@dataclass(frozen=True)
class Front:
    """An https server on localhost. `bench` has the product's processes, and reaches them through the front."""

    bench: Bench
    port: int
    authority: Path


@dataclass(frozen=True)
class BareFront:
    """The bare handler with TLS."""

    process: Process
    port: int
    certificate: Path


@asynccontextmanager
async def run_bare(folder: Path, *, rsa_bits: int = 0) -> AsyncIterator[BareFront]:
    """Run a bare aiohttp handler with a certificate for localhost, of a P-256 key or an RSA key."""
    certificate, port = make_certificate(folder, "localhost", rsa_bits=rsa_bits), free_port()
    command = (sys.executable, "-m", "tests.bench.servers.bare_handler", str(port), str(certificate))
    async with _run_server("bare-tls", port, folder, command, {}) as process:
        yield BareFront(process, port, certificate)


@asynccontextmanager
async def run_up(run: Run, folder: Path) -> AsyncIterator[Front]:
    """Run `pkgrepo up --tls` on the stores of the run."""
    stores = run.stores
    settings = {"MONGO_URL": stores.mongo_url, "REDIS_URL": stores.redis_url, "LOG_LEVEL": "warning"}
    async with run_pkgrepo(folder, "--tls", "--name", "localhost", **settings) as service, AsyncExitStack() as stack:
        authority = folder / "tls" / "ca.crt"
        address = "{0.scheme}://{0.netloc}".format(urlsplit(service.base_url))
        session = await stack.enter_async_context(_session(authority))
        operator = await stack.enter_async_context(open_operator(Addresses("", stores.mongo_url, stores.redis_url)))
        processes = {"pkgrepo up": Process(service.process.pid)}
        bench = Bench(processes, address, stores, operator, session, stack)
        yield Front(bench, urlsplit(address).port or 443, authority)


@asynccontextmanager
async def run_caddy(run: Run, folder: Path, program: str) -> AsyncIterator[Front]:
    """Run the services behind Caddy with the Caddyfile of the compose file, and a P-256 certificate for localhost."""
    certificate, port = make_certificate(folder, "localhost"), free_port()
    settings = {"PUBLIC_URL": f"https://localhost:{port}", "TRUSTED_PROXIES": "127.0.0.0/8"}
    async with run_services(run.stores, settings) as bench, AsyncExitStack() as stack:
        file = folder / "Caddyfile"
        text = CADDYFILE.read_text(encoding="utf-8").replace("gateway:8080", bench.address.removeprefix("http://"))
        file.write_text(CADDY_OPTIONS + text, encoding="utf-8")
        environment = {"PKGREPO_HOST": f"localhost:{port}", "PKGREPO_TLS": f"tls {certificate} {certificate}"}
        homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        command = (program, "run", "--adapter", "caddyfile", "--config", str(file))
        process = await stack.enter_async_context(_run_server("caddy", port, folder, command, {**environment, **homes}))
        session = await stack.enter_async_context(_session(certificate))
        processes = {"caddy": process, **bench.processes}
        address = f"https://localhost:{port}"
        yield Front(replace(bench, processes=processes, address=address, session=session), port, certificate)


def caddy_program() -> str | None:
    """The path of Caddy, if it is installed: in PATH, or by a wheel in this environment."""
    return shutil.which("caddy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def _session(authority: Path) -> ClientSession:
    connector = TCPConnector(ssl=winget_context(authority))
    return ClientSession(connector=connector, raise_for_status=True, timeout=ClientTimeout(TIMEOUT))


@asynccontextmanager
async def _run_server(
    name: str, port: int, folder: Path, command: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[Process]:
    replica = Replica(name, f"127.0.0.1:{port}", folder / f"{name}.log", {**os.environ, **environment}, command)
    await replica.start()
    try:
        await wait_for_port(port)
        yield Process(replica.pid)
    finally:
        await replica.stop()
