"""Faults of processes during uploads: each function kills or restarts services `times` times."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, product

from aiohttp import ClientError

from tests.support.faults.invariants import State, missing_versions, remaining_violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RequestRejected, RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.system.publishing import Published, add_package, package_id, send_chunk
from tests.support.system.services import Api
from tests.support.wait import until

SIZE = 1 << 20  # bytes of an installer, sent in two chunks
LEASE = 16  # seconds after which the lease of a killed upload service has expired
SWEEP_AGE = 61  # seconds after which sweeper and collector process incomplete work
SETTLE_TIMEOUT = 60.0  # seconds
QUOTA = 1 << 20  # bytes, of the tenant without free storage
QUOTA_POLL_INTERVAL = 0.05  # seconds


async def kill_services(cluster: Cluster, services: Collection[str], *, times: int = 1) -> Outcome:
    """Kill a replica of each service with SIGKILL during uploads, and restart it at once."""
    outcome = Outcome(f"kill -9 of {', '.join(services)}", times)
    api = await cluster.services.tenant()
    loop = asyncio.get_running_loop()
    async with run_publishers(api, size=SIZE) as work:
        for number, service in product(range(times), services):
            await work.wait_for_progress()
            replica = cluster.replicas[service][number % len(cluster.replicas[service])]
            await kill_replica(cluster, replica, api)
            began = loop.time()
            await replica.restart()
            outcome.recoveries.append(loop.time() - began)
        await work.wait_for_progress()
    await verify(cluster, api, work.published, outcome)
    return outcome


async def rolling_restart(cluster: Cluster, services: Collection[str], *, times: int = 1) -> Outcome:
    """Restart one replica after the other with SIGTERM. It gets no new connections while it stops."""
    outcome = Outcome(f"rolling restart of {' and '.join(services)}", times)
    api = await cluster.services.tenant()
    loop = asyncio.get_running_loop()
    async with run_publishers(api, size=SIZE) as work:
        await work.wait_for_progress()
        for _ in range(times):
            for replica in [replica for service in services for replica in cluster.replicas[service]]:
                replica.send(signal.SIGTERM)
                await until(partial(replica.has_status, "stopping"))
                cluster.proxies[replica.service].targets.remove(replica.address)
                await replica.stop()
                began = loop.time()
                await replica.start()
                await replica.ready()
                cluster.proxies[replica.service].targets.append(replica.address)
                outcome.recoveries.append(loop.time() - began)
        await work.wait_for_progress()
    outcome.violations += [
        f"a request failed: {reason}, {count} times" for reason, count in work.client.failures.items()
    ]
    await verify(cluster, api, work.published, outcome)
    return outcome


async def mixed_faults(cluster: Cluster, *, seconds: float, seed: int = 0) -> Outcome:
    """Run publishers, deletions, abandoned transfers and a full tenant, and kill a replica from time to time."""
    outcome = Outcome(f"{seconds:.0f} s of mixed load with kills")
    api, chance = await cluster.services.tenant(), random.Random(seed)  # noqa: S311  no secret
    full = await cluster.services.tenant(storage_quota=QUOTA)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    async with (
        _watch_quota(cluster, full, outcome),
        _publish_into_full_tenant(full) as stored,
        run_publishers(api, size=1 << 18) as work,
    ):
        while loop.time() < end:
            await work.wait_for_progress()
            await _abandon_transfer(api, chance)
            replica = chance.choice([replica for replicas in cluster.replicas.values() for replica in replicas])
            await kill_replica(cluster, replica, api, full)
            outcome.times += 1
            began = loop.time()
            await replica.restart()
            outcome.recoveries.append(loop.time() - began)
            for version in [version for version in work.published if chance.random() < 0.5]:
                await _delete(work.client, version)
                work.published.remove(version)
    await verify(cluster, api, work.published, outcome)
    await verify(cluster, full, stored, outcome)
    return outcome


async def verify(cluster: Cluster, api: Api, published: Sequence[Published], outcome: Outcome) -> None:
    """Add lost and duplicated uploads and violations to the outcome, after all uploads are announced."""
    await wait_until_announced(cluster, api.tenant_id)
    await cluster.age_tenant(api.tenant_id, SWEEP_AGE)
    outcome.violations += await remaining_violations(cluster, [api.tenant_id], timeout=SETTLE_TIMEOUT)
    outcome.lost += await missing_versions(api, published)
    outcome.duplicated += (await State.read(cluster.mongo, api.tenant_id)).duplicates()


async def kill_replica(cluster: Cluster, replica: Replica, *tenants: Api) -> None:
    """Kill a replica. Its leases on the tenants' transfers expire at once."""
    await replica.kill()
    if replica.service == "upload_service":
        for api in tenants:
            await cluster.age_tenant(api.tenant_id, LEASE)


async def _abandon_transfer(api: Api, chance: random.Random) -> None:
    """Start a transfer and never continue it."""
    try:
        await send_chunk(api, f"left-{chance.randrange(1 << 60)}", b"x" * 1000, 0, 500)
    except (ClientError, OSError):
        return


async def _delete(client: RetryingClient, version: Published) -> None:
    form = {"versions_uids": version.uid}
    answer = await client.call("DELETE", "delete_package_version", version.package_id, data=form)
    assert answer.status in {200, 404}, answer.body  # 404 if an earlier attempt succeeded


@asynccontextmanager
async def _publish_into_full_tenant(api: Api) -> AsyncIterator[list[Published]]:
    """Run three publishers that delete a version whenever the quota is exceeded. Yields the stored versions."""
    client, name, stopping = RetryingClient(api), package_id(), asyncio.Event()
    stored: list[Published] = []
    await add_package(api, name)

    async def fill(publisher: int) -> None:
        for number in count():
            if stopping.is_set():
                return
            try:
                stored.append(
                    await client.publish(name, f"{publisher}.{number}", os.urandom(QUOTA // 4), chunk=QUOTA // 8)
                )
            except RequestRejected as error:
                if error.answer.status != 407:
                    raise
                if stored:
                    await _delete(client, stored.pop(0))

    async with asyncio.TaskGroup() as group:
        for publisher in range(3):
            group.create_task(fill(publisher))
        yield stored
        stopping.set()


@asynccontextmanager
async def _watch_quota(cluster: Cluster, api: Api, outcome: Outcome) -> AsyncIterator[None]:
    """Check continuously within the block that the quota is never exceeded."""

    async def watch() -> None:
        while True:
            quota = await cluster.mongo["upload"]["quotas"].find_one({"tenant_id": api.tenant_id})
            if quota and quota["used"] + quota["reserved"] > QUOTA:
                outcome.violations.append(f"{quota['used']} used, {quota['reserved']} reserved: more than {QUOTA}")
            await asyncio.sleep(QUOTA_POLL_INTERVAL)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
