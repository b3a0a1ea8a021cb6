"""Services that start before their stores: each reports missing stores, and becomes ready with the last."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from aiohttp import ClientError, ClientSession

from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port
from tests.support.servers.proxy import Mode, Proxy, run_proxy
from tests.support.servers.stores import REQUIRED_STORES, target_of, url_through
from tests.support.wait import until


@dataclass(frozen=True)
class IsolatedServices:
    """A process of every service, and a proxy in front of each store."""

    session: ClientSession
    replicas: dict[str, Replica]
    links: dict[str, Proxy]

    async def missing(self, service: str) -> set[str] | None:
        """The missing dependencies that a service reports. None while it does not answer."""
        try:
            async with self.session.get(f"http://{self.replicas[service].address}/readyz") as answer:
                document = await answer.json()
        except (ClientError, OSError):
            return None
        assert answer.status == (503 if "missing" in document else 200)
        return set(document.get("missing", ()))

    async def wait_for_missing(self, service: str, stores: set[str]) -> None:
        """Wait until a service reports exactly these missing stores. It may report its schema too."""

        async def reports_stores() -> bool:
            missing = await self.missing(service)
            return missing is not None and missing & set(self.links) == stores and (bool(stores) or not missing)

        await until(reports_stores)


@pytest.fixture
async def isolated(cluster: Cluster) -> AsyncIterator[IsolatedServices]:
    stores = cluster.stores
    urls = {"mongodb": stores.mongod.url, "redis": stores.redis.url, "rabbitmq": stores.broker.url}
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())
        links = {name: await stack.enter_async_context(run_proxy(target_of(url))) for name, url in urls.items()}
        for link in links.values():
            await link.set_mode(Mode.REFUSE)
        proxied = {name: url_through(name, link) for name, link in links.items()}
        environment = {
            **cluster.environment,
            "MONGO_URL": proxied["mongodb"],
            "REDIS_URL": proxied["redis"],
            "RABBITMQ_URL": proxied["rabbitmq"],
        }
        replicas = {}
        for service in REQUIRED_STORES:
            log = stores.folder / f"alone-{service}.log"
            replicas[service] = Replica(service, f"127.0.0.1:{free_port()}", log, environment)
            stack.push_async_callback(replicas[service].stop)
            await replicas[service].start()
        yield IsolatedServices(session, replicas, links)


@pytest.mark.full  # test_single_services.py has a sample.
async def test_a_service_is_ready_when_the_last_store_is_reachable(isolated: IsolatedServices) -> None:
    pids = {service: replica.pid for service, replica in isolated.replicas.items()}
    unreachable = {"mongodb", "redis"}
    for name in ("", "rabbitmq", "redis", "mongodb"):
        if name:
            await isolated.links[name].set_mode(Mode.PASS)
            unreachable.discard(name)
        for service, needs in REQUIRED_STORES.items():
            await isolated.wait_for_missing(service, needs & unreachable)
    for service, replica in isolated.replicas.items():
        assert (replica.is_running, replica.pid) == (True, pids[service])
