"""The reference servers of the benchmark: a bare aiohttp handler, and nginx if it is installed."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.callers.load import Call, send
from tests.bench.servers.processes import Process, measure_costs
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port, wait_for_answer

TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
SYSTEM = "/usr/sbin"  # nginx's folder in Debian, often not in PATH


@dataclass(frozen=True)
class Nginx:
    """A process of nginx with several addresses.

    `files` is the folder that it serves: with `sendfile`, `plain` without it, and `onward` through itself as a proxy.
    `sink` forwards bodies unbuffered to the bare handler.
    """

    process: Process
    files: Path
    addresses: dict[str, str]

    def serve(self, size: int) -> None:
        """Let `catalog` be a file of `size` bytes."""
        with (self.files / "catalog").open("wb") as file:
            file.truncate(size)


@dataclass(frozen=True)
class ReferenceServers:
    """The running reference servers."""

    bare: Process
    hello: Call
    nginx: Nginx | None
    folder: Path

    async def cost_of_hello(self, times: int) -> float:
        """Measure the bare handler's CPU microseconds per answer."""
        spent, _ = await measure_costs({"bare": self.bare}, send([self.hello], times))
        return spent["bare"] / times * 1e6


@asynccontextmanager
async def run_reference_servers(folder: Path) -> AsyncIterator[ReferenceServers]:
    """Run the reference servers."""
    async with AsyncExitStack() as stack:

        async def start(name: str, port: int, *command: str) -> Process:
            replica = Replica(name, f"127.0.0.1:{port}", folder / f"{name}.log", dict(os.environ), command)
            await replica.start()
            stack.push_async_callback(replica.stop)
            await wait_for_answer(port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1")
            return Process(replica.pid)

        port = free_port()
        bare = await start("bare", port, sys.executable, "-m", "tests.bench.servers.bare_handler", str(port))
        nginx = None
        if program := shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], SYSTEM])):
            files, ports = folder / "www", {name: free_port() for name in ("sendfile", "plain", "onward", "sink")}
            files.mkdir()
            configuration = folder / "nginx.conf"
            configuration.write_text(_configuration(folder, ports, port), encoding="ascii")
            process = await start("nginx", ports["plain"], program, "-c", str(configuration))
            nginx = Nginx(process, files, {name: f"http://127.0.0.1:{port}" for name, port in ports.items()})
        yield ReferenceServers(bare, Call("GET", f"http://127.0.0.1:{port}/hello"), nginx, folder)


def _configuration(folder: Path, ports: dict[str, int], sink: int) -> str:
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in TEMPORARY)
    proxied = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_request_buffering off;"
    servers = [
        f"listen 127.0.0.1:{ports['sendfile']}; sendfile on; root {folder}/www;",
        f"listen 127.0.0.1:{ports['plain']}; sendfile off; root {folder}/www;",
        f"listen 127.0.0.1:{ports['onward']}; location / {{ proxy_pass http://files; }}",
        f"listen 127.0.0.1:{ports['sink']}; location / {{ proxy_pass http://sink; }}",
    ]
    return (
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx-errors.log;"
        "events { worker_connections 4096; } http { access_log off; keepalive_requests 1000000; client_max_body_size 0;"
        f"{temporary} {proxied} proxy_max_temp_file_size 0;"
        f"upstream files {{ server 127.0.0.1:{ports['sendfile']}; keepalive 64; }}"
        f"upstream sink {{ server 127.0.0.1:{sink}; keepalive 64; }}"
        f"{' '.join(f'server {{ {server} }}' for server in servers)} }}"
    )
