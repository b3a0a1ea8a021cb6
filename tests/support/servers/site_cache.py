"""The cache of a site: the real nginx with the configuration of `deploy/sites`."""

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.local.servers import run_server
from tests.support.processes.fork_server import ROOT
from tests.support.servers.ports import wait_for_answer

TEMPLATE = ROOT / "deploy" / "sites" / "nginx.conf.template"
VARIABLE = re.compile(r"\$\{([A-Z_]+)\}")
FAKETIME = "/usr/$LIB/faketime/libfaketime.so.1"  # The loader knows what $LIB is here.
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])  # Debian's folder of nginx is often not in PATH.


@asynccontextmanager
async def run_site_cache(folder: Path, port: int, origin: str, *, ahead: int = 0) -> AsyncIterator[str]:
    """Run nginx on a folder, which keeps the cache, with a clock `ahead` seconds fast. Yields its address."""
    nginx = shutil.which("nginx", path=PATH)
    assert nginx, "Install nginx-light: make test does it."
    values = {
        "SITE_ORIGIN": origin,
        "SITE_CACHE": str(folder / "installers"),
        "SITE_CACHE_SIZE": "2g",
        "SITE_CA": "/etc/ssl/certs/ca-certificates.crt",
        "SITE_LISTEN": f"127.0.0.1:{port}",
        "SITE_TLS": str(folder / "tls" / "*.conf"),
        "NGINX_LOCAL_RESOLVERS": "127.0.0.1",
    }
    template = TEMPLATE.read_text().replace(" /tmp/", f" {folder}/").replace("/dev/stdout", str(access_log(folder)))
    (folder / "nginx.conf").write_text(VARIABLE.sub(lambda match: values[match[1]], template))
    skew = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={ahead:+d}", "FAKETIME_DONT_FAKE_MONOTONIC=1"] if ahead else []
    command = [*skew, nginx, "-c", str(folder / "nginx.conf"), "-g", "daemon off; user root;"]

    async def ready() -> None:
        await wait_for_answer(port, b"GET /livez HTTP/1.0\r\n\r\n", b"HTTP/1.1 204")

    async with run_server(command, folder, ready):
        yield f"http://127.0.0.1:{port}"


def access_log(folder: Path) -> Path:
    return folder / "access.log"
