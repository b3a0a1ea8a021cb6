"""Cancelled transfers: their storage is free at once, and their X-File-ID accepts no more chunks."""

import asyncio

import pytest

from tests.support.api import Answer
from tests.support.services.replicas import FILE, HALF, Replicas
from tests.support.services.upload import form, make_uploader
from upload_service.model import Status
from upload_service.quota.store import MongoQuotaStore
from upload_service.uploads.store import MongoUploadStore

GONE = {"Message": "Transfer was deleted successfully!"}


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["code"]


async def test_a_cancelled_transfer_is_removed_at_once(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    answer = await replicas.second.cancel(caller, "f")
    assert (answer.status, answer.body) == (200, GONE)
    await replicas.expect_nothing(caller)
    assert (await replicas.first.state(caller, "f")).status == 404
    assert problem(await replicas.first.cancel(caller, "f")) == (404, "transfer_not_found")


@pytest.mark.parametrize("start", [0, HALF], ids=["first chunk", "next chunk"])
async def test_a_cancelled_transfer_takes_no_more_chunks(replicas: Replicas, start: int) -> None:
    caller = await replicas.start_transfer()
    await replicas.second.cancel(caller, "f")
    assert problem(await replicas.send(caller, start, start + HALF)) == (409, "transfer_cancelled")
    await replicas.expect_nothing(caller)
    other_id = await replicas.first.chunk(caller, "g", FILE, 0, len(FILE))
    assert (other_id.status, other_id.body["complete"]) == (200, True)


async def test_a_first_chunk_after_its_cancellation_is_refused(replicas: Replicas) -> None:
    caller = make_uploader()
    assert (await replicas.second.cancel(caller, "f")).status == 404
    assert problem(await replicas.send(caller, 0, HALF)) == (409, "transfer_cancelled")
    await replicas.expect_nothing(caller)


async def test_a_malformed_chunk_of_a_cancelled_transfer_is_a_bad_request(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    await replicas.second.cancel(caller, "f")
    answer = await replicas.first.send(caller, "f", "bytes 9-1/2", form(("chunk", b"x", "c")))
    assert (*problem(answer), answer.body["received"]) == (400, "invalid_request", 0)


async def test_a_cancellation_between_the_two_steps_of_a_first_chunk_wins(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, cancellations = make_uploader(), list[Answer]()
    open_transfer = MongoUploadStore.create

    async def cancel_first(store: MongoUploadStore, tenant_id: str, file_id: str, total: int, uploader: str) -> None:
        cancellations.append(await replicas.second.cancel(caller, "f"))
        await open_transfer(store, tenant_id, file_id, total, uploader)

    monkeypatch.setattr(MongoUploadStore, "create", cancel_first)
    answer = await replicas.send(caller, 0, HALF)
    assert [cancellation.status for cancellation in cancellations] == [404]
    assert problem(answer) == (409, "transfer_cancelled")
    await replicas.expect_nothing(caller)


async def test_a_first_chunk_between_the_two_steps_of_a_cancellation_is_removed(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, chunks = make_uploader(), list[Answer]()
    add_cancelled = MongoUploadStore.add_cancelled

    async def send_first(store: MongoUploadStore, tenant_id: str, file_id: str, uploader: str) -> None:
        chunks.append(await replicas.send(caller, 0, HALF))
        await add_cancelled(store, tenant_id, file_id, uploader)

    monkeypatch.setattr(MongoUploadStore, "add_cancelled", send_first)
    assert (await replicas.second.cancel(caller, "f")).status == 200
    assert [chunk.status for chunk in chunks] == [200]
    await replicas.expect_nothing(caller)


async def test_a_transfer_of_another_tenant_is_not_found(replicas: Replicas) -> None:
    caller, other_tenant = await replicas.start_transfer(), make_uploader()
    state = await replicas.first.state(other_tenant, "f")
    for _ in range(2):
        answer = await replicas.first.cancel(other_tenant, "f")
        assert problem(answer) == (404, "transfer_not_found")
        assert answer.body["detail"] == state.body["detail"]
    assert (await replicas.first.state(caller, "f")).body["received"] == HALF


@pytest.mark.parametrize("claimed", [False, True])
async def test_an_installer_cannot_be_cancelled_as_a_transfer(replicas: Replicas, claimed: bool) -> None:
    caller = await replicas.start_transfer()
    last = await replicas.send(caller, HALF, len(FILE))
    if claimed:
        await replicas.first.claim(caller, last.body["server_filename"])
    usage = await replicas.first.usage(caller)
    assert problem(await replicas.second.cancel(caller, "f")) == (409, "transfer_complete")
    replicas.expect_file(caller, last)
    assert await replicas.first.usage(caller) == usage


@pytest.mark.parametrize("start", [0, HALF], ids=["that succeeds", "that breaks off"])
async def test_a_cancellation_waits_for_a_chunk_at_another_replica(replicas: Replicas, start: int) -> None:
    caller = await replicas.start_transfer() if start else make_uploader()
    chunk = await replicas.stall_chunk(caller, start)
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))
    if start:
        await chunk.cancel()
    else:
        assert (await chunk.resume()).status == 200
    assert (await cancellation).status == 200
    await replicas.expect_nothing(caller)


async def test_a_cancellation_does_not_wait_forever_for_a_chunk(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upload_service.uploads.service.LEASE_TIMEOUT", 0.3)
    caller = await replicas.start_transfer()
    chunk = await replicas.stall_chunk(caller, HALF)
    answer = await replicas.second.cancel(caller, "f")
    assert (answer.status, answer.headers["Retry-After"]) == (500, "1")
    assert (await chunk.resume()).body["complete"]
    again = await replicas.send(caller, HALF, len(FILE))
    assert (again.status, again.body["complete"]) == (200, True)


async def test_an_interrupted_cancellation_is_finished_by_the_next_one(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await replicas.start_transfer()

    async def die(*_: object) -> None:
        raise RuntimeError("the process has died")

    with monkeypatch.context() as patched:
        patched.setattr(MongoQuotaStore, "release", die)
        assert (await replicas.first.cancel(caller, "f")).status == 500
    assert (await replicas.record(caller))["status"] == Status.DELETING  # The collector would find it, too.
    assert await replicas.second.usage(caller) == (0, len(FILE))
    assert (await replicas.second.cancel(caller, "f")).status == 200
    await replicas.expect_nothing(caller)
