"""Services that are killed, restarted, or doubled while publishers work: each function is one fault, done `times`."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count, product

from aiohttp import ClientError

from tests.support.faults.invariants import State, missing_versions, violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RequestRejected, RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.wait import until
from tests.support.whole.publishing import Published, add_package, package_id, send_chunk
from tests.support.whole.services import Api

SIZE = 1 << 20  # bytes of an installer, sent in two chunks
LEASE = 16  # seconds, after which the lease of a killed upload service is over
SWEEP_AGE = 61  # seconds, after which sweepers and collectors take up what was left halfway
SETTLE_TIMEOUT = 60.0  # seconds
QUOTA = 1 << 20  # bytes, of the tenant that is always full
QUOTA_POLL_INTERVAL = 0.05  # seconds between two looks at the quota


async def kill_services(cluster: Cluster, services: Collection[str], *, times: int = 1) -> Outcome:
    """`kill -9` of a replica of each service, the next one each time, while publishers work; started again at once."""
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
    """One replica after the other gets SIGTERM, no new connections once it says so, and is ready before the next."""
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
    outcome.violations += [f"a request failed: {what}, {n} times" for what, n in work.client.failures.items()]
    await verify(cluster, api, work.published, outcome)
    return outcome


async def mixed_faults(cluster: Cluster, *, seconds: float, seed: int = 0) -> Outcome:
    """Publishers, deletions, transfers that are left lie, a tenant that is always full, and now and then a kill."""
    outcome = Outcome(f"{seconds:.0f} s of everything with kills")
    api, chance = await cluster.services.tenant(), random.Random(seed)  # noqa: S311  no secret
    full = await cluster.services.tenant(storage_quota=QUOTA)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    async with (
        _watch_quota(cluster, full, outcome),
        _publish_into_full_tenant(full) as kept,
        run_publishers(api, size=1 << 18) as work,
    ):
        while loop.time() < end:
            await work.wait_for_progress()
            await _abandon_transfer(api, chance)
            replica = chance.choice([one for replicas in cluster.replicas.values() for one in replicas])
            await kill_replica(cluster, replica, api, full)
            outcome.times += 1
            began = loop.time()
            await replica.restart()
            outcome.recoveries.append(loop.time() - began)
            for version in [version for version in work.published if chance.random() < 0.5]:
                await _delete(work.client, version)
                work.published.remove(version)
    await verify(cluster, api, work.published, outcome)
    await verify(cluster, full, kept, outcome)
    return outcome


async def verify(cluster: Cluster, api: Api, published: Sequence[Published], outcome: Outcome) -> None:
    """Add what came of the publishers' work, once all of it is announced, and what was left halfway is settled."""
    await wait_until_announced(cluster, api.tenant_id)
    await cluster.age_tenant(api.tenant_id, SWEEP_AGE)
    wrong: list[str] = []

    async def all_is_well() -> bool:
        wrong[:] = await violations(cluster, [api.tenant_id])
        return not wrong

    with suppress(TimeoutError):
        await until(all_is_well, timeout=SETTLE_TIMEOUT)
    outcome.violations += wrong
    outcome.lost += await missing_versions(api, published)
    outcome.duplicated += (await State.read(cluster.mongo, api.tenant_id)).duplicates()


async def kill_replica(cluster: Cluster, replica: Replica, *tenants: Api) -> None:
    """Kill a replica; its tenants' transfers do not wait for the leases that it held."""
    await replica.kill()
    if replica.service == "upload_service":
        for api in tenants:
            await cluster.age_tenant(api.tenant_id, LEASE)


async def _abandon_transfer(api: Api, chance: random.Random) -> None:
    """Begin a transfer, and never go on."""
    try:
        await send_chunk(api, f"left-{chance.randrange(1 << 60)}", b"x" * 1000, 0, 500)
    except (ClientError, OSError):
        return


async def _delete(client: RetryingClient, version: Published) -> None:
    form = {"versions_uids": version.uid}
    answer = await client.call("DELETE", "delete_package_version", version.package_id, data=form)
    assert answer.status in {200, 404}, answer.body  # 404 where an earlier try came through


@asynccontextmanager
async def _publish_into_full_tenant(api: Api) -> AsyncIterator[list[Published]]:
    """Let three publishers bring in more than the tenant has room for, and delete when told; yields what is there."""
    client, name, over = RetryingClient(api), package_id(), asyncio.Event()
    kept: list[Published] = []
    await add_package(api, name)

    async def fill(lane: int) -> None:
        for number in count():
            if over.is_set():
                return
            try:
                kept.append(await client.publish(name, f"{lane}.{number}", os.urandom(QUOTA // 4), chunk=QUOTA // 8))
            except RequestRejected as refused:
                if refused.answer.status != 407:
                    raise
                if kept:
                    await _delete(client, kept.pop(0))

    async with asyncio.TaskGroup() as group:
        for lane in range(3):
            group.create_task(fill(lane))
        yield kept
        over.set()


@asynccontextmanager
async def _watch_quota(cluster: Cluster, api: Api, outcome: Outcome) -> AsyncIterator[None]:
    """Look at the tenant's quota all the time within the block: it is never exceeded."""

    async def watch() -> None:
        while True:
            found = await cluster.mongo["upload"]["quotas"].find_one({"tenant_id": api.tenant_id})
            if found and found["used"] + found["reserved"] > QUOTA:
                outcome.violations.append(f"{found['used']} used, {found['reserved']} reserved: more than {QUOTA}")
            await asyncio.sleep(QUOTA_POLL_INTERVAL)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
