"""What an answer costs at least: a bare aiohttp handler, and nginx where it is installed, as processes of their own.

python -m tests.bench.yardsticks PORT  (the bare handler alone)
"""

import asyncio
import getpass
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import web

from tests.bench.processes import spent
from tests.ports import answering, free_port

NGINX = """
user {user};
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  sendfile on;
  default_type application/json;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/files;
    location = /hello {{ return 200 "hello"; }}
  }}
}}
"""
QUESTION = b"GET /hello HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Yardstick:
    """A server that does nothing but answer."""

    base_url: str
    processes: tuple[int, ...]

    def cpu(self) -> float:
        """Seconds of processor time it has used."""
        return sum(map(spent, self.processes))


@asynccontextmanager
async def bare_aiohttp() -> AsyncIterator[Yardstick]:
    """`/hello` as aiohttp answers it on uvloop with nothing in between."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, str(port))
    try:
        await answering(port, QUESTION, b"HTTP/1.1 200")
        yield Yardstick(f"http://127.0.0.1:{port}", (process.pid,))
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def nginx(folder: Path) -> AsyncIterator[Yardstick | None]:
    """`/hello`, and the files of `folder/files`; None where there is no nginx here."""
    program = shutil.which("nginx")
    if program is None:
        yield None
        return
    (folder / "files").mkdir(parents=True, exist_ok=True)
    port, settings = free_port(), folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, port=port, user=getpass.getuser()), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(program, "-e", "stderr", "-p", str(folder), "-c", str(settings))
    try:
        await answering(port, QUESTION, b"HTTP/1.1 200")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        yield Yardstick(f"http://127.0.0.1:{port}", (process.pid, *map(int, children)))
    finally:
        process.terminate()
        await process.wait()


async def _hello(_: web.Request) -> web.Response:
    return web.Response(body=b"hello")


async def _serve(port: int) -> None:
    app = web.Application()
    app.router.add_get("/hello", _hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
