"""Stores that die under the services, and a broker that is away, full, or takes nothing: each function is one fault.

Each does its fault `times` times for `seconds`, on a cluster that works before and goes on by itself afterwards: nobody
starts a service again.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import aio_pika
from aiohttp import ClientTimeout

from tests.support.api import Answer
from tests.support.faults.invariants import missing_versions, violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.processes.cluster import Cluster
from tests.support.servers.stores import Server, target_of
from tests.support.wait import until
from tests.support.whole.publishing import upload
from tests.support.whole.services import Api

Result = TypeVar("Result")
UPLOADS = 200
CONCURRENCY = 20  # of them
SIZE = 100  # bytes of each
ANSWER_TIMEOUT = ClientTimeout(total=10)  # far more than the 3 seconds that a problem may take
QUEUE = "catalog_service"


async def kill_mongod(cluster: Cluster, *, times: int = 1, seconds: float = 3) -> Outcome:
    """MongoDB is killed while publishers work: problems meanwhile, nothing acknowledged is lost, no process ends."""
    outcome = Outcome(f"mongod killed, away for {seconds:.0f} s", times)
    api, before = await cluster.services.tenant(), pids(cluster)
    async with run_publishers(api) as work:
        for _ in range(times):
            await work.wait_for_progress()
            await kill_store(cluster.stores.mongod)
            async for answer in repeat_for(lambda: api.call("POST", "get_packages", timeout=ANSWER_TIMEOUT), seconds):
                outcome.violations += unexpected_answer(answer)
            await cluster.stores.mongod.start()
            outcome.recoveries.append(await work.wait_for_progress())
    await wait_until_announced(cluster, api.tenant_id)
    outcome.lost += await missing_versions(api, work.published)
    outcome.violations += (
        work.unexpected_failures() + exited_processes(cluster, before) + await violations(cluster, [api.tenant_id])
    )
    return outcome


async def kill_redis(cluster: Cluster, *, times: int = 1, seconds: float = 1) -> Outcome:
    """Redis is killed: no administrator is let in, while clients with a token of their own read on."""
    outcome = Outcome(f"redis killed, away for {seconds:.0f} s", times)
    api, before = await cluster.services.tenant(client_authentication=True), pids(cluster)
    added = await api.call("POST", "add_client", data={"client_name": "pc-1"})
    token, nobody = {"auth_token": added.body["auth_token"]}, api.anonymous()

    async def ask() -> list[tuple[int, Answer]]:
        """Answers, and the status that each should have."""
        asked = {"data": token, "timeout": ANSWER_TIMEOUT}
        return [
            (500, await api.call("GET", "get_clients", timeout=ANSWER_TIMEOUT)),
            (500, await api.call("POST", "add_package", data={"package_id": "a"}, timeout=ANSWER_TIMEOUT)),
            (200, await nobody.call("POST", "get_packages", **asked)),
            (200, await nobody.call("POST", "client_version", **asked)),
            (401, await nobody.call("POST", "get_packages", timeout=ANSWER_TIMEOUT)),
        ]

    for _ in range(times):
        await kill_store(cluster.stores.redis)
        async for answers in repeat_for(ask, seconds):
            outcome.violations += [
                f"{answer.status} {answer.body} instead of {status}"
                for status, answer in answers
                if answer.status != status
            ]
        await cluster.stores.redis.start()
        api = await api.signed_in()
        async with run_publishers(api) as work:
            outcome.recoveries.append(await work.wait_for_progress())
        outcome.lost += await missing_versions(api, work.published)
    outcome.violations += exited_processes(cluster, before)
    return outcome


async def stop_broker(cluster: Cluster, *, times: int = 1, seconds: float = 1, uploads: int = UPLOADS) -> Outcome:
    """RabbitMQ is stopped while files come in: all are answered, and announced when it is back, to one effect."""
    broker = cluster.stores.broker
    return await _upload_during_fault(
        cluster,
        Outcome(f"rabbitmq away for {seconds:.0f} s", times),
        lambda _: broker.control("stop_app"),
        lambda _: broker.control("start_app"),
        seconds,
        uploads,
        at_most=0,
    )


async def fill_broker_disk(cluster: Cluster, *, times: int = 1, seconds: float = 1, uploads: int = UPLOADS) -> Outcome:
    """RabbitMQ takes nothing because its disk is full."""
    broker = cluster.stores.broker
    return await _upload_during_fault(
        cluster,
        Outcome(f"rabbitmq's disk full for {seconds:.0f} s", times),
        lambda _: broker.control("set_disk_free_limit", "1000000GB"),
        lambda _: broker.control("set_disk_free_limit", "50MB"),
        seconds,
        uploads,
        at_most=uploads // 2,  # RabbitMQ blocks a connection after what it sends next.
    )


async def delete_queue(cluster: Cluster, *, times: int = 1, uploads: int = UPLOADS) -> Outcome:
    """The consumer's queue is deleted, empty: what no queue takes is not announced until there is one again."""

    async def delete(_: str) -> None:
        async with await aio_pika.connect(cluster.stores.broker.url) as connection:
            await (await connection.channel()).queue_delete(QUEUE)

    return await _upload_during_fault(cluster, Outcome("queue deleted", times), delete, do_nothing, 0, uploads)


async def publish_events_twice(cluster: Cluster, *, times: int = 1, uploads: int = UPLOADS) -> Outcome:
    """The state that a relay leaves which dies between the broker's confirmation and its own note: a second event."""

    async def unsay(tenant_id: str) -> None:
        complete = {"tenant_id": tenant_id, "status": {"$in": ["complete", "linked"]}}
        await cluster.mongo["upload"]["uploads"].update_many(complete, {"$set": {"announced": False}})

    return await _upload_during_fault(cluster, Outcome("events published twice", times), do_nothing, unsay, 1, uploads)


async def _upload_during_fault(
    cluster: Cluster,
    outcome: Outcome,
    fail: Callable[[str], Awaitable[None]],
    recover: Callable[[str], Awaitable[None]],
    seconds: float,
    uploads: int,
    *,
    at_most: int | None = None,
) -> Outcome:
    """`fail` and `recover` get the tenant's id; at most `at_most` files can be announced between the two."""
    loop, before = asyncio.get_running_loop(), pids(cluster)
    for _ in range(outcome.times):
        api = await cluster.services.tenant()
        await fail(api.tenant_id)
        try:
            names = await upload_many(api, uploads)
            await asyncio.sleep(seconds)
            announced = await cluster.mongo["upload"]["uploads"].count_documents(
                {"tenant_id": api.tenant_id, "announced": True}
            )
            if at_most is not None and announced > at_most:
                outcome.violations.append(f"{announced} were announced meanwhile")
        finally:
            await recover(api.tenant_id)
        began = loop.time()
        await wait_until_announced(cluster, api.tenant_id)
        outcome.recoveries.append(loop.time() - began)
        heard = [row["server_filename"] for row in (await api.call("GET", "get_finished_uploads")).body]
        outcome.lost += [f"{name} was not heard of" for name in names if name not in heard]
        outcome.duplicated += [f"{name} was heard of twice" for name in set(heard) if heard.count(name) > 1]
        outcome.violations += await violations(cluster, [api.tenant_id])
    outcome.violations += exited_processes(cluster, before)
    return outcome


async def do_nothing(_: str) -> None:
    """What recovers by itself."""


async def kill_store(server: Server) -> None:
    """`kill -9`, and see that nobody listens any more."""

    async def refuses() -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(target_of(server.url).removeprefix("unix:"))
        except OSError:
            return True
        writer.close()
        return False

    server.kill()
    await until(refuses)


async def upload_many(api: Api, count: int) -> list[str]:
    """The server filenames of many small files, all answered with 200."""
    turns = asyncio.Semaphore(CONCURRENCY)

    async def one() -> str:
        async with turns:
            return await upload(api, os.urandom(SIZE))

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def repeat_for(ask: Callable[[], Awaitable[Result]], seconds: float) -> AsyncIterator[Result]:
    """What is answered again and again for so many seconds, at least once."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        yield await ask()
        if loop.time() >= end:
            return


def unexpected_answer(answer: Answer) -> list[str]:
    """What is wrong with an answer while the databases are away."""
    kind = answer.headers.get("Content-Type", "")
    if answer.status == 500 and kind == "application/problem+json" and answer.body["code"] == "dependency_unavailable":
        return []
    return [f"{answer.status} {kind} {answer.body} while the database is away"]


def pids(cluster: Cluster) -> dict[str, list[int]]:
    return {name: [replica.pid for replica in replicas] for name, replicas in cluster.replicas.items()}


def exited_processes(cluster: Cluster, before: dict[str, list[int]]) -> list[str]:
    """The processes that were there before and do not run any more, each as a sentence."""
    running = {replica.pid for replicas in cluster.replicas.values() for replica in replicas if replica.is_running}
    return [f"{name} ended" for name, numbers in before.items() for pid in numbers if pid not in running]
