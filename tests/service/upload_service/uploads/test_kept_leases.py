"""A lease is kept between two chunks of a transfer: the next one needs no update to begin, and no promise is weaker."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pymongo.errors import AutoReconnect

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.services.replicas import FILE, HALF, Replicas, two_replicas
from tests.support.services.upload import serving_uploads, sha256
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.settings import UploadSettings
from upload_service.store import LEASE_FREE
from upload_service.uploads.store import MongoUploadStore

LONG = 3600.0  # seconds
QUARTER = HALF // 2
OTHER = bytes(byte ^ 1 for byte in FILE)


@pytest.fixture
async def replicas(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    """Two services that keep a lease until something else ends it, and acknowledge each chunk in the record."""
    monkeypatch.setattr("upload_service.uploads.store.CERTAIN_SECONDS", 0)
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", LONG)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", LONG)
    async with two_replicas(settings) as both:
        yield both


async def is_leased(replicas: Replicas, caller: Caller) -> bool:
    held = {"tenant_id": caller.tenant_id, "lease_until": {"$gt": LEASE_FREE}}
    return await replicas.database["uploads"].count_documents(held) == 1


async def expire(database: MongoDatabase, caller: Caller) -> None:
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    await database["uploads"].update_one({"tenant_id": caller.tenant_id}, {"$set": {"lease_until": expired_at}})


async def test_a_chunk_in_the_middle_needs_one_update(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, calls = await replicas.start_transfer(), list[str]()
    for name in ("acquire_lease", "find", "create", "renew", "release", "advance"):
        real = getattr(MongoUploadStore, name)

        def counted(*arguments: object, _name: str = name, _real: object = real, **options: object) -> object:
            calls.append(_name)
            return _real(*arguments, **options)  # type: ignore[operator]

        monkeypatch.setattr(MongoUploadStore, name, counted)
    await replicas.first.chunk(caller, "f", FILE[HALF : HALF + QUARTER], HALF, len(FILE))
    assert calls == ["advance"]
    last = await replicas.first.chunk(caller, "f", FILE[HALF + QUARTER :], HALF + QUARTER, len(FILE))
    assert (last.body["sha256"], calls) == (sha256(FILE), ["advance"])


async def test_an_idle_lease_is_released(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", 0.05)
    caller = await replicas.start_transfer()
    last = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (last.status, last.body["sha256"]) == (200, sha256(FILE))
    record = await replicas.database["uploads"].find_one({"tenant_id": caller.tenant_id})
    assert record is not None
    assert (record["fence"], record["part"]) == (2, 0)  # Nothing was copied.


async def test_no_lease_is_kept_while_chunks_alternate(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", 0.05)
    caller = await replicas.start_transfer()
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", LONG)
    for number, api in enumerate((replicas.second, replicas.first, replicas.second)):
        start = HALF + number * 10
        assert (await api.chunk(caller, "f", FILE[start : start + 10], start, len(FILE))).status == 200
        assert not await is_leased(replicas, caller)


async def test_a_kept_lease_ends_with_the_process(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", LONG)
    async with two_replicas(settings) as replicas:
        async with serving_uploads(settings) as ending:
            caller = await Replicas(ending, replicas.second, replicas.database).start_transfer()
            assert await is_leased(replicas, caller)
        assert not await is_leased(replicas, caller)
        last = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert last.body["sha256"] == sha256(FILE)


async def test_a_cancellation_at_the_holder_needs_no_wait(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    assert (await replicas.first.cancel(caller, "f")).status == 200
    assert (replicas.first.files(caller), await replicas.first.usage(caller)) == ([], (0, 0))


@pytest.mark.parametrize("length", [QUARTER, HALF], ids=["in the middle", "last chunk"])
async def test_a_holder_stores_no_chunk_after_a_cancellation_elsewhere(replicas: Replicas, length: int) -> None:
    caller = await replicas.start_transfer()
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))

    async def is_cancelled() -> bool:
        record = {"tenant_id": caller.tenant_id, "cancelled": True}
        return await replicas.database["uploads"].count_documents(record) == 1

    await until(is_cancelled)
    answer = await replicas.first.chunk(caller, "f", FILE[HALF : HALF + length], HALF, len(FILE))
    assert (answer.status, answer.body["code"]) == (409, "transfer_cancelled")
    assert (await cancellation).status == 200
    assert (replicas.first.files(caller), await replicas.first.usage(caller)) == ([], (0, 0))


async def test_a_lease_is_not_kept_for_a_transfer_cancelled_meanwhile(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    assert (await replicas.first.chunk(caller, "f", b"", HALF, len(FILE), end=HALF)).status == 400  # releases it
    chunk = StalledChunk(replicas.first, caller, "f", FILE[HALF : HALF + QUARTER], HALF, len(FILE))

    async def is_acquired() -> bool:
        return await is_leased(replicas, caller)

    await until(is_acquired)
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))

    async def is_cancelled() -> bool:
        record = {"tenant_id": caller.tenant_id, "cancelled": True}
        return await replicas.database["uploads"].count_documents(record) == 1

    await until(is_cancelled)
    assert (await chunk.resume()).status == 200
    assert (await cancellation).status == 200


@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "last chunk"])
async def test_a_stale_holder_of_a_kept_lease_changes_nothing(replicas: Replicas, *, last: bool) -> None:
    caller = await replicas.start_transfer()
    await expire(replicas.database, caller)  # The holder was paused.
    stop = HALF + QUARTER
    fresh = await replicas.second.chunk(caller, "f", FILE[HALF:stop], HALF, len(FILE))
    assert (fresh.status, fresh.body["received"]) == (200, stop)
    end = len(FILE) if last else stop
    stale = await replicas.first.chunk(caller, "f", OTHER[HALF:end], HALF, len(FILE))
    assert (stale.status, stale.headers["Retry-After"]) == (500, "1")
    done = await replicas.second.chunk(caller, "f", FILE[stop:], stop, len(FILE))
    assert done.body["sha256"] == sha256(FILE)
    name = done.body["server_filename"]
    assert (replicas.first.folder / caller.tenant_id / name).read_bytes() == FILE
    assert replicas.first.files(caller) == [name]


async def test_a_stale_holder_writes_beside_a_transfer_that_goes_on(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    slow = StalledChunk(replicas.first, caller, "f", OTHER[HALF:], HALF, len(FILE))
    await slow.half_sent()
    await expire(replicas.database, caller)
    done = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (done.status, done.body["sha256"]) == (200, sha256(FILE))
    assert (await slow.resume()).status == 500
    assert (replicas.first.folder / caller.tenant_id / done.body["server_filename"]).read_bytes() == FILE


async def test_two_chunks_at_the_holder_are_stored_in_turn(replicas: Replicas) -> None:
    caller, stop = await replicas.start_transfer(), HALF + QUARTER
    chunks = [replicas.first.chunk(caller, "f", FILE[HALF:stop], HALF, len(FILE)) for _ in range(5)]
    assert {answer.status for answer in await asyncio.gather(*chunks)} == {200}
    done = await replicas.first.chunk(caller, "f", FILE[stop:], stop, len(FILE))
    assert done.body["sha256"] == sha256(FILE)


async def test_a_lease_that_cannot_be_released_expires(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", 0.1)
    tried = asyncio.Event()

    async def fail(_store: MongoUploadStore, _upload: Upload) -> bool:
        tried.set()
        raise AutoReconnect

    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "release", fail)
        caller = await replicas.start_transfer()
        await tried.wait()
    done = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert done.body["sha256"] == sha256(FILE)


async def test_a_waiting_replica_gets_the_lease_of_a_steady_stream(replicas: Replicas) -> None:
    caller, position, step = await replicas.start_transfer(), HALF, 4
    resent = asyncio.create_task(replicas.second.chunk(caller, "f", FILE[:HALF], 0, len(FILE)))
    while position < len(FILE) - step and not resent.done():
        answer = await replicas.first.chunk(caller, "f", FILE[position : position + step], position, len(FILE))
        assert answer.status == 200
        position += step
    assert resent.done()
    assert ((await resent).status, (await resent).body["complete"]) == (200, False)
    done = await replicas.first.chunk(caller, "f", FILE[position:], position, len(FILE))
    assert done.body["sha256"] == sha256(FILE)


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
