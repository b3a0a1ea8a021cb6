"""All services as processes, with any number of replicas, behind balancing proxies.

    async with private_stores(folder) as stores, run_cluster(stores, upload_service=2, gateway=2) as cluster:
        api = await cluster.services.tenant()
        await cluster.replicas["upload_service"][0].kill()
        await cluster.restart_ended()
        await cluster.age(api.tenant_id, 60)

All connections to a service pass its proxy, `proxies[service]`. The proxy fails on request, and passes each connection
to the next listening replica.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from auth_service.users.throttle_store import RedisFailureCounts
from common.auth.internal_tokens import Deployment
from common.mongo import Document
from common.redis import TenantVersions, open_redis
from deploy.local.folder import SERVICES, Addresses
from deploy.operator.tenants import open_operator
from tests.support.factories import KEY
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port
from tests.support.servers.proxy import Proxy, run_proxy
from tests.support.servers.stores import Stores
from tests.support.system.services import Services

DATABASES = ("auth", "catalog", "upload", "clients")
# Short pauses, in seconds, of the background work of the services.
SHORT_PAUSES = {
    "upload_service.app:COLLECTION_PAUSE": 0.2,
    "upload_service.app:RELAY_PAUSE": 0.2,
    "catalog_service.app:SWEEP_PAUSE": 0.2,
    "catalog_service.app:RELEASE_PAUSE": 0.2,
    "catalog_service.app:RETENTION_PAUSE": 0.2,
    "catalog_service.app:INFECTED_PAUSE": 1,
}
SENTINEL_DATES_BEFORE = datetime(
    2000, 1, 1, tzinfo=UTC
)  # A date before it is a sign, not a time: a lease that was given back.


@dataclass(frozen=True)
class Cluster:
    """The running services.

    `replicas` and `proxies` are by service name, including `gateway`. `services` has the addresses and the operator, as
    in other system tests. `mongo` connects to the databases without a proxy.
    """

    stores: Stores
    replicas: dict[str, list[Replica]]
    proxies: dict[str, Proxy]
    services: Services
    mongo: AsyncMongoClient[Document]
    tenant_versions: TenantVersions
    environment: dict[str, str]
    patches: Mapping[str, Any]
    _counts: dict[str, int] = field(default_factory=dict)

    async def add(
        self,
        service: str,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        receives_connections: bool = True,
    ) -> Replica:
        """Start another replica, and wait until it is ready. The proxy uses it if it `receives_connections`.

        `environment` is added to the common one. `command` defaults to `python -m <service>`.
        """
        replica = self._replica(service, environment or {}, command)
        await replica.start()
        await replica.ready()
        if receives_connections:
            self.proxies[service].targets.append(replica.address)
        return replica

    async def remove(self, replica: Replica) -> None:
        """Kill a replica and forget it. A graceful stop would take seconds."""
        targets = self.proxies[replica.service].targets
        targets[:] = [address for address in targets if address != replica.address]
        self.replicas[replica.service].remove(replica)
        await replica.kill()

    async def start(self, **counts: int) -> None:
        """Start more replicas of each service in parallel."""
        added = [self._replica(service, {}, ()) for service, count in counts.items() for _ in range(count)]
        await asyncio.gather(*(replica.start() for replica in added))
        await asyncio.gather(*(replica.ready() for replica in added))
        for replica in added:
            self.proxies[replica.service].targets.append(replica.address)

    async def restart_exited(self) -> None:
        """Start every replica that has exited, and wait until all are ready."""
        replicas = [replica for replicas in self.replicas.values() for replica in replicas]
        await asyncio.gather(*(replica.start() for replica in replicas if not replica.is_running))
        await self.ready()

    async def ready(self) -> None:
        """Wait until every replica accepts requests. Raises NotStarted for one that has exited."""
        await asyncio.gather(*(replica.ready() for replicas in self.replicas.values() for replica in replicas))

    async def age_tenant(self, tenant_id: str, seconds: float) -> None:
        """Make a tenant's data older: the dates in its records, and its files.

        Expiry dates of MongoDB's TTL indexes stay.
        """
        for name in DATABASES:
            database = self.mongo[name]
            for collection in await database.list_collection_names():
                await _age(database[collection], tenant_id, timedelta(seconds=seconds))
        await self.tenant_versions.bump(tenant_id)  # Invalidates the caches of the gateways.
        # A service may remove files and folders meanwhile; `walk` passes over those, `glob` does not.
        for folder, folders, files in os.walk(self.stores.installers / tenant_id):
            for file in (Path(folder, name) for name in (*folders, *files)):
                with suppress(FileNotFoundError):
                    times = file.stat()
                    os.utime(file, (times.st_atime - seconds, times.st_mtime - seconds))

    def _replica(self, service: str, environment: Mapping[str, str], command: Sequence[str]) -> Replica:
        number = self._counts[service] = self._counts.get(service, 0) + 1
        folder = self.stores.folder
        # The gateway needs callers' addresses, and a unix socket has none.
        address = f"127.0.0.1:{free_port()}" if service == "gateway" else f"unix:{folder / f'{service}-{number}.sock'}"
        log = folder / f"{service}-{number}.log"
        patches = {place: value for place, value in self.patches.items() if place.startswith(f"{service}.")}
        if patches and not command:
            command = (sys.executable, "-m", "tests.support.processes.failpoints", service)
            environment = {"PATCHES": json.dumps(patches), **environment}
        replica = Replica(service, address, log, {**self.environment, **environment}, command)
        self.replicas[service].append(replica)
        return replica


@asynccontextmanager
async def run_cluster(
    stores: Stores,
    environment: Mapping[str, str] | None = None,
    patches: Mapping[str, Any] | None = None,
    **counts: int,
) -> AsyncIterator[Cluster]:
    """Start `counts` ready replicas of each service, by default one, and stop them at the end.

    `environment` has further settings for all services, `patches` other values of constants, as in `failpoints`.
    """
    names = (*SERVICES, "gateway")
    async with AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(run_proxy()) for name in names}
        common = {
            **os.environ,
            **dict.fromkeys(("INTERNAL_KEY", "SESSION_KEY", "AUDIT_KEY", "DOWNLOAD_KEY", "CLIENT_TOKEN_KEY"), KEY),
            **{f"{name.upper()}_URL": f"http://{proxies[name].address}" for name in SERVICES},
            "MONGO_URL": stores.mongo_url,
            "REDIS_URL": stores.redis_url,
            "RABBITMQ_URL": stores.rabbitmq_url,
            "INSTALLERS": str(stores.installers),
            **(environment or {}),
        }
        operator = await stack.enter_async_context(open_operator(Addresses("", stores.mongod.url, stores.redis.url)))
        redis = await stack.enter_async_context(open_redis(stores.redis.url))
        client = AsyncMongoClient[Document](stores.mongod.url, tz_aware=True, readConcernLevel="majority")
        mongo = await stack.enter_async_context(client)
        session = await stack.enter_async_context(ClientSession())
        addresses = {Deployment.MULTI.value: f"http://{proxies['gateway'].address}"}
        services = Services(session, addresses, operator, stores.installers, RedisFailureCounts(redis))
        replicas: dict[str, list[Replica]] = {name: [] for name in names}
        stack.push_async_callback(_stop_all, replicas)
        cluster = Cluster(stores, replicas, proxies, services, mongo, TenantVersions(redis), common, patches or {})
        await cluster.start(**{**dict.fromkeys(names, 1), **counts})
        yield cluster


async def _stop_all(replicas: Mapping[str, Sequence[Replica]]) -> None:
    await asyncio.gather(*(replica.stop() for same in replicas.values() for replica in same))


async def _age(collection: AsyncCollection[Document], tenant_id: str, span: timedelta) -> None:
    """Subtract `span` from every top-level date and those of due work, in one update: no concurrent write is lost."""
    dated = [{"$eq": [{"$type": "$$this.v"}, "date"]}, {"$gt": ["$$this.v", SENTINEL_DATES_BEFORE]}]
    old = {"$subtract": ["$$this.v", int(span.total_seconds() * 1000)]}
    value = {"$cond": [{"$and": [*dated, {"$ne": ["$$this.k", "expires_at"]}]}, old, "$$this.v"]}
    work = _map_fields("$work", _map_fields("$$this.v", value))
    aged = [
        {"$replaceWith": _map_fields("$$ROOT", value)},
        {"$set": {"work": {"$cond": [{"$eq": [{"$type": "$work"}, "object"]}, work, "$$REMOVE"]}}},
    ]
    await collection.update_many({"tenant_id": tenant_id}, aged)


def _map_fields(document: str, value: Document) -> Document:
    """A document whose values are this expression of their names and values: `$$this.k` and `$$this.v`."""
    return {"$arrayToObject": {"$map": {"input": {"$objectToArray": document}, "in": {"k": "$$this.k", "v": value}}}}
