"""Faults of stores and the broker: each function is one fault.

A function repeats its fault `times` times for `seconds`. The cluster recovers by itself; no service is restarted.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import aio_pika
from aiohttp import ClientTimeout

from common.work import due_now
from tests.support.api import Answer
from tests.support.faults.invariants import missing_versions, violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.processes.cluster import Cluster
from tests.support.servers.stores import Server, target_of
from tests.support.system.publishing import upload
from tests.support.system.services import Api
from tests.support.wait import until
from upload_service.store import ANNOUNCE, STORED

Result = TypeVar("Result")
UPLOADS = 200
CONCURRENCY = 20  # of them
SIZE = 100  # bytes of each
ANSWER_TIMEOUT = ClientTimeout(total=10)  # more than the 3 seconds that an error may take
QUEUE = "catalog_service"


async def kill_mongod(cluster: Cluster, *, times: int = 1, seconds: float = 3) -> Outcome:
    """Kill MongoDB during uploads. Requests get problems, nothing acknowledged is lost, no process ends."""
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
    """Kill Redis. Administrators are rejected, and clients with a token can still read."""
    outcome = Outcome(f"redis killed, away for {seconds:.0f} s", times)
    api, before = await cluster.services.tenant(client_authentication=True), pids(cluster)
    added = await api.call("POST", "add_client", data={"client_name": "pc-1"})
    token, anonymous = {"auth_token": added.body["auth_token"]}, api.anonymous()

    async def send_requests() -> list[tuple[int, Answer]]:
        """The answers, each with its expected status."""
        request = {"data": token, "timeout": ANSWER_TIMEOUT}
        return [
            (500, await api.call("GET", "get_clients", timeout=ANSWER_TIMEOUT)),
            (500, await api.call("POST", "add_package", data={"package_id": "a"}, timeout=ANSWER_TIMEOUT)),
            (200, await anonymous.call("POST", "get_packages", **request)),
            (200, await anonymous.call("POST", "client_version", **request)),
            (401, await anonymous.call("POST", "get_packages", timeout=ANSWER_TIMEOUT)),
        ]

    for _ in range(times):
        await kill_store(cluster.stores.redis)
        async for answers in repeat_for(send_requests, seconds):
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
    """Stop RabbitMQ during uploads. All uploads succeed, and are announced once after the restart."""
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
    """Let RabbitMQ accept no message because its disk is full."""
    broker = cluster.stores.broker
    return await _upload_during_fault(
        cluster,
        Outcome(f"rabbitmq's disk full for {seconds:.0f} s", times),
        lambda _: broker.control("set_disk_free_limit", "1000000GB"),
        lambda _: broker.control("set_disk_free_limit", "50MB"),
        seconds,
        uploads,
        at_most=uploads // 2,  # RabbitMQ blocks a connection only after its next message.
    )


async def delete_queue(cluster: Cluster, *, times: int = 1, uploads: int = UPLOADS) -> Outcome:
    """Delete the consumer's empty queue. Uploads stay unannounced until the queue exists again."""

    async def delete(_: str) -> None:
        async with await aio_pika.connect(cluster.stores.broker.url) as connection:
            await (await connection.channel()).queue_delete(QUEUE)

    return await _upload_during_fault(cluster, Outcome("queue deleted", times), delete, do_nothing, 0, uploads)


async def publish_events_twice(cluster: Cluster, *, times: int = 1, uploads: int = UPLOADS) -> Outcome:
    """Publish events twice, as after a relay that died between the broker's confirmation and its own record."""

    async def mark_unannounced(tenant_id: str) -> None:
        complete = {"tenant_id": tenant_id, "status": {"$in": ["complete", "linked"]}}
        await cluster.mongo["upload"]["uploads"].update_many(complete, [{"$set": due_now(ANNOUNCE)}])

    return await _upload_during_fault(
        cluster, Outcome("events published twice", times), do_nothing, mark_unannounced, 1, uploads
    )


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
    """Upload files between `fail` and `recover`, which get the tenant id. At most `at_most` may be announced."""
    loop, before = asyncio.get_running_loop(), pids(cluster)
    for _ in range(outcome.times):
        api = await cluster.services.tenant()
        await fail(api.tenant_id)
        try:
            names = await upload_many(api, uploads)
            await asyncio.sleep(seconds)
            announced = await cluster.mongo["upload"]["uploads"].count_documents(
                {"tenant_id": api.tenant_id, **STORED, "work.announce": {"$exists": False}}
            )
            if at_most is not None and announced > at_most:
                outcome.violations.append(f"{announced} were announced meanwhile")
        finally:
            await recover(api.tenant_id)
        began = loop.time()
        await wait_until_announced(cluster, api.tenant_id)
        outcome.recoveries.append(loop.time() - began)
        received = [row["server_filename"] for row in (await api.call("GET", "get_finished_uploads")).body]
        outcome.lost += [f"{name} was not received" for name in names if name not in received]
        outcome.duplicated += [f"{name} was received twice" for name in set(received) if received.count(name) > 1]
        outcome.violations += await violations(cluster, [api.tenant_id])
    outcome.violations += exited_processes(cluster, before)
    return outcome


async def do_nothing(_: str) -> None:
    """Do nothing: the fault ends by itself."""


async def kill_store(server: Server) -> None:
    """Send SIGKILL, and wait until the server refuses connections."""

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
    """Upload many small files. Returns their server filenames."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def upload_one() -> str:
        async with limit:
            return await upload(api, os.urandom(SIZE))

    return list(await asyncio.gather(*(upload_one() for _ in range(count))))


async def repeat_for(request: Callable[[], Awaitable[Result]], seconds: float) -> AsyncIterator[Result]:
    """Repeat a request for this many seconds, at least once. Yields each result."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        yield await request()
        if loop.time() >= end:
            return


def unexpected_answer(answer: Answer) -> list[str]:
    """The sentence for an answer that is no `dependency_unavailable` problem while a database is away."""
    kind = answer.headers.get("Content-Type", "")
    if answer.status == 500 and kind == "application/problem+json" and answer.body["code"] == "dependency_unavailable":
        return []
    return [f"{answer.status} {kind} {answer.body} while the database is away"]


def pids(cluster: Cluster) -> dict[str, list[int]]:
    return {name: [replica.pid for replica in replicas] for name, replicas in cluster.replicas.items()}


def exited_processes(cluster: Cluster, before: dict[str, list[int]]) -> list[str]:
    """The processes of `before` that have exited, each as a sentence."""
    running = {replica.pid for replicas in cluster.replicas.values() for replica in replicas if replica.is_running}
    return [f"{name} exited" for name, numbers in before.items() for pid in numbers if pid not in running]
