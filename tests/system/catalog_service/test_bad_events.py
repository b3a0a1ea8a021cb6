"""Invalid messages in the exchange do not stop or delay valid events."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractExchange, AbstractQueue

from common.events import Event
from common.events.broker import EXCHANGE
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.stores import QUEUE, exited_processes, pids
from tests.support.processes.cluster import Cluster
from tests.support.system.publishing import add_package, package_id, publish, upload
from tests.support.system.services import Api
from tests.support.wait import TIMEOUT, until

pytestmark = pytest.mark.full  # tests/contract/common/events/test_events.py has a sample.
DOCUMENT_LIMIT = 16 << 20  # bytes of a MongoDB document; the other fields of a record need a few hundred


@pytest.fixture
async def tenant(cluster: Cluster) -> Api:
    return await cluster.services.tenant()


@pytest.fixture
async def channel(cluster: Cluster) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect(cluster.stores.broker.url) as connection:
        yield await connection.channel()


@pytest.fixture
async def exchange(channel: aio_pika.abc.AbstractChannel) -> AbstractExchange:
    return await channel.get_exchange(EXCHANGE)


@pytest.fixture
async def dead(channel: aio_pika.abc.AbstractChannel) -> AbstractQueue:
    """The empty dead-letter queue."""
    queue = await channel.get_queue(f"{QUEUE}.dead")
    await queue.purge()
    return queue


def make_event(api: Api, **data: Any) -> Event:
    """An event of upload_service about a file that does not exist."""
    fields = {"server_filename": uuid4().hex, "file_id": "f", "size": 1, "sha256": "ab" * 32, **data}
    return Event(uuid4().hex, "upload.finished", "upload_service", api.tenant_id, datetime.now(UTC), fields)


async def send(exchange: AbstractExchange, api: Api, *bodies: bytes) -> None:
    for body in bodies:
        await exchange.publish(aio_pika.Message(body), f"upload.finished.{api.tenant_id}")


async def dead_letters(queue: AbstractQueue, count: int) -> Counter[str]:
    """The reasons of the next dead letters, from the broker."""
    reasons: list[str] = []
    async with asyncio.timeout(TIMEOUT), queue.iterator() as messages:
        async for message in messages:
            await message.ack()
            deaths: Any = message.headers["x-death"]
            reasons.append(deaths[0]["reason"])
            if len(reasons) == count:
                break
    return Counter(reasons)


async def unassigned(api: Api) -> list[str]:
    """The uploads that the catalog lists."""
    return [row["server_filename"] for row in (await api.call("GET", "get_finished_uploads")).body]


async def test_a_bad_event_is_dead_lettered_without_delaying_the_next(
    cluster: Cluster, tenant: Api, exchange: AbstractExchange, dead: AbstractQueue
) -> None:
    before = pids(cluster)
    unreadable = [
        b"",
        b"poison",
        b"\xff\xfe",
        b"[]",
        b'{"data": {}}',
        make_event(tenant).encode().replace(b"upload.finished", b"upload.invented"),
        make_event(tenant).encode().replace(b"tenant_id", b"tenant_di"),
    ]
    rejected = [
        make_event(tenant, size="much").encode(),
        make_event(tenant, sha256=None).encode().replace(b'"sha256":null,', b"").replace(b',"sha256":null', b""),
        make_event(tenant, file_id="x" * (2 * DOCUMENT_LIMIT)).encode(),
        make_event(tenant, file_id="x" * (DOCUMENT_LIMIT - 200)).encode(),
        make_event(tenant, size=2**63).encode(),
    ]
    await send(exchange, tenant, *unreadable, *rejected)
    name = await upload(tenant, os.urandom(100))
    await wait_until_announced(cluster, tenant.tenant_id)
    assert await unassigned(tenant) == [name]
    letters = await dead_letters(dead, len(unreadable) + len(rejected))
    assert letters == {"rejected": len(unreadable) + len(rejected)}
    assert exited_processes(cluster, before) == []


async def test_a_repeated_or_late_event_changes_nothing(
    cluster: Cluster, tenant: Api, exchange: AbstractExchange
) -> None:
    package = package_id()
    await add_package(tenant, package)
    published = await publish(tenant, package)
    free = await upload(tenant, os.urandom(100))
    await wait_until_announced(cluster, tenant.tenant_id)
    uploads = await cluster.mongo["upload"]["uploads"].find({"tenant_id": tenant.tenant_id}).to_list()
    events = [
        replace(
            make_event(tenant, **{name: row[name] for name in ("server_filename", "file_id", "size", "sha256")}),
            event_id=row["upload_id"],
            time=datetime.now(UTC) + shift,
        )
        for shift in (timedelta(0), timedelta(hours=1), timedelta(hours=-1))
        for row in reversed(uploads)
    ]
    await send(exchange, tenant, *(event.encode() for event in events * 3))
    last = make_event(tenant)
    await send(exchange, tenant, last.encode())

    async def last_event_is_handled() -> bool:
        query = {"tenant_id": tenant.tenant_id, "server_filename": last.data["server_filename"]}
        return await cluster.mongo["catalog"]["finished_uploads"].count_documents(query) == 1

    await until(last_event_is_handled)
    assert await unassigned(tenant) == [free]
    assert (await tenant.call("GET", "get_specific_package_version", published.uid)).status == 200
