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

from tests.support.faults.invariants import State, missing, violations
from tests.support.faults.publishers import at_rest, at_work
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import Client, Refused
from tests.support.processes.cluster import Fleet
from tests.support.processes.replica import Replica
from tests.support.wait import until
from tests.support.whole.publishing import Published, add_package, package_id, send_chunk
from tests.support.whole.services import Api

SIZE = 1 << 20  # bytes of an installer, sent in two chunks
LEASE = 16  # seconds, after which the lease of a killed upload service is over
HALFWAY = 61  # seconds, after which sweepers and collectors take up what was left halfway
SETTLED_WITHIN = 60.0  # seconds
QUOTA = 1 << 20  # bytes, of the tenant that is always full
READINGS_PAUSE = 0.05  # seconds between two looks at the quota


async def killed(fleet: Fleet, services: Collection[str], *, times: int = 1) -> Outcome:
    """`kill -9` of a replica of each service, the next one each time, while publishers work; started again at once."""
    outcome = Outcome(f"kill -9 of {', '.join(services)}", times)
    api = await fleet.services.tenant()
    loop = asyncio.get_running_loop()
    async with at_work(api, size=SIZE) as work:
        for number, service in product(range(times), services):
            await work.more()
            replica = fleet.replicas[service][number % len(fleet.replicas[service])]
            await kill_replica(fleet, replica, api)
            began = loop.time()
            await replica.restart()
            outcome.recoveries.append(loop.time() - began)
        await work.more()
    await judge(fleet, api, work.published, outcome)
    return outcome


async def restarted_in_turn(fleet: Fleet, services: Collection[str], *, times: int = 1) -> Outcome:
    """One replica after the other gets SIGTERM, no new connections once it says so, and is ready before the next."""
    outcome = Outcome(f"rolling restart of {' and '.join(services)}", times)
    api = await fleet.services.tenant()
    loop = asyncio.get_running_loop()
    async with at_work(api, size=SIZE) as work:
        await work.more()
        for _ in range(times):
            for replica in [replica for service in services for replica in fleet.replicas[service]]:
                replica.send(signal.SIGTERM)
                await until(partial(replica.says, "stopping"))
                fleet.proxies[replica.service].targets.remove(replica.address)
                await replica.stop()
                began = loop.time()
                await replica.start()
                await replica.ready()
                fleet.proxies[replica.service].targets.append(replica.address)
                outcome.recoveries.append(loop.time() - began)
        await work.more()
    outcome.violations += [f"a request failed: {what}, {n} times" for what, n in work.client.failures.items()]
    await judge(fleet, api, work.published, outcome)
    return outcome


async def mixed(fleet: Fleet, *, seconds: float, seed: int = 0) -> Outcome:
    """Publishers, deletions, transfers that are left lie, a tenant that is always full, and now and then a kill."""
    outcome = Outcome(f"{seconds:.0f} s of everything with kills")
    api, chance = await fleet.services.tenant(), random.Random(seed)  # noqa: S311  no secret
    full = await fleet.services.tenant(storage_quota=QUOTA)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    async with _watched(fleet, full, outcome), _filled(full) as kept, at_work(api, size=1 << 18) as work:
        while loop.time() < end:
            await work.more()
            await _leave_lie(api, chance)
            replica = chance.choice([one for replicas in fleet.replicas.values() for one in replicas])
            await kill_replica(fleet, replica, api, full)
            outcome.times += 1
            began = loop.time()
            await replica.restart()
            outcome.recoveries.append(loop.time() - began)
            for version in [version for version in work.published if chance.random() < 0.5]:
                await _delete(work.client, version)
                work.published.remove(version)
    await judge(fleet, api, work.published, outcome)
    await judge(fleet, full, kept, outcome)
    return outcome


async def judge(fleet: Fleet, api: Api, published: Sequence[Published], outcome: Outcome) -> None:
    """Add what came of the publishers' work, once all of it is announced, and what was left halfway is settled."""
    await at_rest(fleet, api.tenant_id)
    await fleet.age(api.tenant_id, HALFWAY)
    wrong: list[str] = []

    async def all_is_well() -> bool:
        wrong[:] = await violations(fleet, [api.tenant_id])
        return not wrong

    with suppress(TimeoutError):
        await until(all_is_well, timeout=SETTLED_WITHIN)
    outcome.violations += wrong
    outcome.lost += await missing(api, published)
    outcome.duplicated += (await State.read(fleet.mongo, api.tenant_id)).doubled()


async def kill_replica(fleet: Fleet, replica: Replica, *tenants: Api) -> None:
    """Kill a replica; its tenants' transfers do not wait for the leases that it held."""
    await replica.kill()
    if replica.service == "upload_service":
        for api in tenants:
            await fleet.age(api.tenant_id, LEASE)


async def _leave_lie(api: Api, chance: random.Random) -> None:
    """Begin a transfer, and never go on."""
    try:
        await send_chunk(api, f"left-{chance.randrange(1 << 60)}", b"x" * 1000, 0, 500)
    except (ClientError, OSError):
        return


async def _delete(client: Client, version: Published) -> None:
    form = {"versions_uids": version.uid}
    answer = await client.insist("DELETE", "delete_package_version", version.package_id, data=form)
    assert answer.status in {200, 404}, answer.body  # 404 where an earlier try came through


@asynccontextmanager
async def _filled(api: Api) -> AsyncIterator[list[Published]]:
    """Let three publishers bring in more than the tenant has room for, and delete when told; yields what is there."""
    client, name, over = Client(api), package_id(), asyncio.Event()
    kept: list[Published] = []
    await add_package(api, name)

    async def fill(lane: int) -> None:
        for number in count():
            if over.is_set():
                return
            try:
                kept.append(await client.publish(name, f"{lane}.{number}", os.urandom(QUOTA // 4), chunk=QUOTA // 8))
            except Refused as refused:
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
async def _watched(fleet: Fleet, api: Api, outcome: Outcome) -> AsyncIterator[None]:
    """Look at the tenant's quota all the time within the block: it is never exceeded."""

    async def watch() -> None:
        while True:
            found = await fleet.mongo["upload"]["quotas"].find_one({"tenant_id": api.tenant_id})
            if found and found["used"] + found["reserved"] > QUOTA:
                outcome.violations.append(f"{found['used']} used, {found['reserved']} reserved: more than {QUOTA}")
            await asyncio.sleep(READINGS_PAUSE)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
