"""A real Prometheus with the product's configuration and a short scrape interval."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession

from deploy.local.servers import run_server
from tests.support.deployment.observability import OBSERVABILITY, find_program
from tests.support.servers.ports import free_port, wait_for_answer

INTERVAL = "1s"
_SELECTOR = re.compile(r'(?<![\w:])(up|(?:pkgrepo|process)_\w+)(\{(?:[^"}]|"[^"]*")*\})?')


@dataclass(frozen=True)
class Prometheus:
    """Queries of a running Prometheus. An error fails the test."""

    session: ClientSession
    address: str

    async def query(self, expression: str) -> list[dict[str, str]]:
        """The labels of all current results of an expression."""
        data = await self._get("query", query=expression)
        return [row["metric"] for row in data["result"]]

    async def rules(self) -> list[dict[str, Any]]:
        return [rule for group in (await self._get("rules"))["groups"] for rule in group["rules"]]

    async def _get(self, resource: str, **params: str) -> dict[str, Any]:
        async with self.session.get(f"{self.address}/api/v1/{resource}", params=params) as answer:
            body = await answer.json()
            assert body["status"] == "success", (params, body["error"])
            data: dict[str, Any] = body["data"]
            return data


@asynccontextmanager
async def run_prometheus(folder: Path, targets: Mapping[str, Sequence[str]]) -> AsyncIterator[Prometheus]:
    """Run Prometheus. `targets` are `host:port` by service, instead of service discovery."""
    configuration = yaml.safe_load((OBSERVABILITY / "prometheus.yaml").read_text())
    configuration["global"].update(scrape_interval=INTERVAL, scrape_timeout=INTERVAL, evaluation_interval=INTERVAL)
    configuration["rule_files"] = [str(OBSERVABILITY / name) for name in configuration["rule_files"]]
    [job] = configuration["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [
        {"targets": list(addresses), "labels": {"__meta_dns_name": service}} for service, addresses in targets.items()
    ]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    port = free_port()
    command = [
        find_program("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'figures'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    async with ClientSession() as session:
        ready = wait_for_answer(port, b"GET /-/ready HTTP/1.0\r\n\r\n", b"HTTP/1.0 200")
        async with run_server(command, folder / "server", lambda: ready):
            yield Prometheus(session, f"http://127.0.0.1:{port}")


def selectors(expression: str) -> list[str]:
    """The series selectors of an expression, without the series of Prometheus itself."""
    return [name + (matchers or "") for name, matchers in _SELECTOR.findall(expression)]
