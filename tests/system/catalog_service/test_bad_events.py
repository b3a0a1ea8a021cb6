"""Invalid messages in the exchange do not stop or delay valid events."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue

from common.events import Event
from common.events.broker import EXCHANGE
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.stores import QUEUE, exited_processes, pids
from tests.support.processes.cluster import Cluster
from tests.support.system.publishing import upload
from tests.support.system.services import Api
from tests.support.wait import TIMEOUT

pytestmark = pytest.mark.full  # tests/contract/common/events/test_events.py has a sample.
DOCUMENT_LIMIT = 16 << 20  # bytes of a MongoDB document; the other fields of a record need a few hundred


@pytest.fixture
async def channel(cluster: Cluster) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(cluster.stores.broker.url) as connection:
        yield await connection.channel()


def make_event(api: Api, **data: Any) -> Event:
    """An event of upload_service about a file that does not exist."""
    fields = {"server_filename": uuid4().hex, "file_id": "f", "size": 1, "sha256": "ab" * 32, **data}
    return Event(uuid4().hex, "upload.finished", "upload_service", api.tenant_id, datetime.now(UTC), fields)


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


async def test_a_bad_event_is_dead_lettered_without_delaying_the_next(
    cluster: Cluster, channel: AbstractChannel
) -> None:
    tenant, before = await cluster.services.tenant(), pids(cluster)
    dead = await channel.get_queue(f"{QUEUE}.dead")
    await dead.purge()
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
    exchange = await channel.get_exchange(EXCHANGE)
    for body in (*unreadable, *rejected):
        await exchange.publish(aio_pika.Message(body), f"upload.finished.{tenant.tenant_id}")
    name = await upload(tenant, os.urandom(100))
    await wait_until_announced(cluster, tenant.tenant_id)
    assert [row["server_filename"] for row in (await tenant.call("GET", "get_finished_uploads")).body] == [name]
    letters = await dead_letters(dead, len(unreadable) + len(rejected))
    assert letters == {"rejected": len(unreadable) + len(rejected)}
    assert exited_processes(cluster, before) == []
