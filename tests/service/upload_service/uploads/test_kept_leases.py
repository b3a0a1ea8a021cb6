"""A lease is kept between two chunks of a transfer: the next one needs no update to begin, and no promise is weaker."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pymongo.errors import AutoReconnect

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.replicas import FILE, HALF, OTHER, Replicas, two_replicas, watch_store
from tests.support.services.upload import serving_uploads
from upload_service.model import Upload
from upload_service.settings import UploadSettings
from upload_service.store import LEASE_FREE
from upload_service.uploads.store import MongoUploadStore

LONG = 3600.0  # seconds
QUARTER = HALF // 2
IDLE_SECONDS = "upload_service.uploads.session.IDLE_SECONDS"
CERTAIN_SECONDS = "upload_service.uploads.store.CERTAIN_SECONDS"


@pytest.fixture
async def replicas(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    """Two services that keep a lease until something else ends it, and acknowledge each chunk in the record."""
    monkeypatch.setattr(CERTAIN_SECONDS, 0)
    monkeypatch.setattr(IDLE_SECONDS, LONG)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", LONG)
    async with two_replicas(settings) as both:
        yield both


async def is_leased(replicas: Replicas, caller: Caller) -> bool:
    held = {"tenant_id": caller.tenant_id, "lease_until": {"$gt": LEASE_FREE}}
    return await replicas.database["uploads"].count_documents(held) == 1


@pytest.mark.parametrize(
    ("certain", "updates"), [(0, ["advance"]), (LONG, [])], ids=["in the record", "in the log of offsets"]
)
async def test_a_chunk_in_the_middle_needs_no_more_updates_than_its_offset(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, certain: float, updates: list[str]
) -> None:
    monkeypatch.setattr(CERTAIN_SECONDS, certain)
    caller, stop = await replicas.start_transfer(), HALF + QUARTER
    calls = watch_store(monkeypatch)
    assert (await replicas.send(caller, HALF, stop)).body["received"] == stop
    assert calls == updates
    replicas.expect_file(caller, await replicas.send(caller, stop, len(FILE)))
    assert calls == updates


async def test_an_idle_lease_is_released(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IDLE_SECONDS, 0.05)
    caller = await replicas.start_transfer()
    await replicas.finish(caller, HALF)
    record = await replicas.record(caller)
    assert (record["fence"], record["part"]) == (2, 0)  # Nothing was copied.


async def test_no_lease_is_kept_while_chunks_alternate(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IDLE_SECONDS, 0.05)
    caller = await replicas.start_transfer()
    monkeypatch.setattr(IDLE_SECONDS, LONG)
    for number in range(3):
        start = HALF + number * 10
        assert (await replicas.send(caller, start, start + 10, second=number != 1)).status == 200
        assert not await is_leased(replicas, caller)


async def test_a_kept_lease_ends_with_the_process(replicas: Replicas, settings: UploadSettings) -> None:
    async with serving_uploads(settings) as ending:
        caller = await replace(replicas, first=ending).start_transfer()
        assert await is_leased(replicas, caller)
    assert not await is_leased(replicas, caller)
    await replicas.finish(caller, HALF)


async def test_a_cancellation_at_the_holder_needs_no_wait(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    assert (await replicas.first.cancel(caller, "f")).status == 200
    await replicas.expect_nothing(caller)


@pytest.mark.parametrize("length", [QUARTER, HALF], ids=["in the middle", "last chunk"])
async def test_a_holder_stores_no_chunk_after_a_cancellation_elsewhere(replicas: Replicas, length: int) -> None:
    caller = await replicas.start_transfer()
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))
    await replicas.until_cancelled(caller)
    answer = await replicas.send(caller, HALF, HALF + length)
    assert (answer.status, answer.body["code"]) == (409, "transfer_cancelled")
    assert (await cancellation).status == 200
    await replicas.expect_nothing(caller)


async def test_a_lease_is_not_kept_for_a_transfer_cancelled_meanwhile(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    assert (await replicas.send(caller, HALF, HALF, end=HALF)).status == 400  # releases it
    chunk = await replicas.stall_chunk(caller, HALF, QUARTER)
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))
    await replicas.until_cancelled(caller)
    assert (await chunk.resume()).status == 200
    assert (await cancellation).status == 200


@pytest.mark.parametrize("end", [HALF + QUARTER, len(FILE)], ids=["in the middle", "last chunk"])
async def test_a_stale_holder_of_a_kept_lease_changes_nothing(replicas: Replicas, end: int) -> None:
    caller, stop = await replicas.start_transfer(), HALF + QUARTER
    await replicas.expire_lease(caller)  # The holder was paused.
    assert (await replicas.send(caller, HALF, stop, second=True)).body["received"] == stop
    stale = await replicas.send(caller, HALF, end, content=OTHER)
    assert (stale.status, stale.headers["Retry-After"]) == (500, "1")
    await replicas.finish(caller, stop)


async def test_a_lease_that_cannot_be_released_expires(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IDLE_SECONDS, 0.01)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", 0.1)
    tried = asyncio.Event()

    async def fail(_store: MongoUploadStore, _upload: Upload) -> bool:
        tried.set()
        raise AutoReconnect

    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "release", fail)
        caller = await replicas.start_transfer()
        await tried.wait()
    await replicas.finish(caller, HALF)


async def test_a_waiting_replica_gets_the_lease_of_a_steady_stream(replicas: Replicas) -> None:
    caller, position, step = await replicas.start_transfer(), HALF, 4
    resent = asyncio.create_task(replicas.send(caller, 0, HALF, second=True))
    while position < len(FILE) - step and not resent.done():
        assert (await replicas.send(caller, position, position + step)).status == 200
        position += step
    assert resent.done()
    assert ((await resent).status, (await resent).body["complete"]) == (200, False)
    replicas.expect_file(caller, await replicas.send(caller, position, len(FILE)))


async def test_a_released_lease_is_reserved_for_a_waiting_process(database: MongoDatabase) -> None:
    holder, waiter, third = (MongoUploadStore(database) for _ in range(3))
    await holder.create("acme", "f", 10)
    leased = await holder.acquire_lease("acme", "f")
    assert leased
    await waiter.want(leased)
    await third.want(leased)  # comes second
    kept = await holder.advance(replace(leased, offset=5), keep=True)
    assert (kept and kept.is_kept, await holder.acquire_lease("acme", "f")) == (False, None)
    assert await third.acquire_lease("acme", "f") is None
    assert await waiter.acquire_lease("acme", "f") == replace(leased, offset=5, fence=2)


async def test_a_reservation_of_a_lease_expires(database: MongoDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.store.WANTED_SECONDS", 0)
    holder, waiter = MongoUploadStore(database), MongoUploadStore(database)
    await holder.create("acme", "f", 10)
    leased = await holder.acquire_lease("acme", "f")
    assert leased
    await waiter.want(leased)  # and gives up
    kept = await holder.advance(replace(leased, offset=5), keep=True)
    assert kept
    assert kept.is_kept
