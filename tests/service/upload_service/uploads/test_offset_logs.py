"""Chunks in the middle of a transfer are acknowledged by its log of offsets, and none of them is ever lost."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from common.auth.internal_tokens import Caller
from common.http.zero_copy.socket_body import LEAST
from tests.support.services.replicas import FILE, HALF, OTHER, Pause, Replicas, two_replicas
from tests.support.services.upload import make_uploader
from upload_service.model import Upload
from upload_service.settings import UploadSettings
from upload_service.storage.part_files import PROGRESS, PartFile, PartFiles
from upload_service.uploads.session import KeptLeases
from upload_service.uploads.store import MongoUploadStore

LONG = 3600.0  # seconds
END = HALF + HALF // 2  # the offset in the log of a transfer of `start`


@pytest.fixture
async def replicas(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    """Two services; their leases are certain until a test ends them."""
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", LONG)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", LONG)
    monkeypatch.setattr("upload_service.uploads.store.CERTAIN_SECONDS", LONG)
    async with two_replicas(settings) as both:
        yield both


async def start(replicas: Replicas) -> Caller:
    """Start a transfer whose two chunks after `HALF` are acknowledged by the log of offsets."""
    caller = await replicas.start_transfer()
    for stop in ((HALF + END) // 2, END):
        answer = await replicas.send(caller, stop - (END - HALF) // 2, stop)
        assert (answer.status, answer.body["received"]) == (200, stop)
    return caller


async def fail_to_release(*_: object) -> bool:
    raise AutoReconnect


def let_a_lease_be_uncertain(patched: pytest.MonkeyPatch) -> None:
    patched.setattr("upload_service.uploads.session.clock", lambda: 2 * LONG + os.times().elapsed)


async def test_an_acknowledged_chunk_survives_its_replica(replicas: Replicas) -> None:
    caller = await start(replicas)
    assert (await replicas.record(caller))["offset"] == HALF
    await replicas.expire_lease(caller)
    await replicas.finish(caller, END)


async def test_a_replica_sees_what_another_one_acknowledged(replicas: Replicas) -> None:
    caller = await start(replicas)
    assert (await replicas.second.state(caller, "f")).body["received"] == END
    malformed = await replicas.second.chunk(caller, "f", b"x", 5, 3)
    assert (malformed.status, malformed.body["received"]) == (400, END)


async def test_a_take_over_compares_a_resent_chunk(replicas: Replicas) -> None:
    caller = await start(replicas)
    await replicas.expire_lease(caller)
    assert (await replicas.send(caller, HALF, END, second=True)).body["received"] == END
    other = await replicas.send(caller, HALF, END, second=True, content=OTHER)
    assert (other.status, other.body["received"]) == (400, END)
    await replicas.finish(caller, END)


async def test_a_take_over_that_refuses_its_chunk_keeps_the_offset(replicas: Replicas) -> None:
    caller = await start(replicas)
    await replicas.expire_lease(caller)
    gap = await replicas.send(caller, END + 1, END + 2, second=True)
    assert (gap.status, gap.body["received"], (await replicas.record(caller))["offset"]) == (400, END, END)
    await replicas.finish(caller, END)


@pytest.mark.parametrize(
    ("method", "error"),
    [("progress", asyncio.CancelledError()), ("copy", asyncio.CancelledError()), ("progress", OSError(errno.EIO, ""))],
    ids=["dies before it reads", "dies before it copies", "cannot read"],
)
async def test_the_offset_survives_a_take_over_that_fails(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException
) -> None:
    caller = await start(replicas)
    await replicas.expire_lease(caller)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(PartFiles, method, fail)
        if isinstance(error, OSError):
            assert (await replicas.send(caller, END, END + 1, second=True)).status == 500
        else:
            with pytest.raises(Exception, match="disconnected"):
                await replicas.send(caller, END, END + 1, second=True)
            await replicas.expire_lease(caller)
    await replicas.finish(caller, END)


async def test_a_released_lease_puts_the_offset_in_the_record(replicas: Replicas) -> None:
    caller = await start(replicas)
    assert (await replicas.send(caller, END + 1, END + 2)).status == 400  # releases it
    assert (await replicas.record(caller))["offset"] == END
    await replicas.finish(caller, END)
    assert (await replicas.record(caller))["fence"] == 2


async def test_the_record_follows_after_a_while(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.store.CERTAIN_SECONDS", 0)
    caller = await start(replicas)
    assert (await replicas.record(caller))["offset"] == END


async def test_a_log_lost_with_its_folder_is_a_damaged_transfer(replicas: Replicas) -> None:
    caller = await start(replicas)
    shutil.rmtree(replicas.first.part(caller, "f").parent)
    await replicas.expire_lease(caller)
    assert (await replicas.send(caller, HALF, len(FILE), second=True)).status == 500


@pytest.mark.parametrize(
    "method", ["write", "sync", "log"], ids=["data written", "data on disk", "before its acknowledgement"]
)
async def test_a_late_holder_acknowledges_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller = await start(replicas)
    pause = Pause(monkeypatch, PartFile, method, "after")
    late = asyncio.create_task(replicas.first.chunk(caller, "f", OTHER[END : END + 4], END, len(FILE)))
    await pause.reached()
    await replicas.expire_lease(caller)
    let_a_lease_be_uncertain(monkeypatch)
    state = await replicas.send(caller, END, END, second=True, end=END)  # takes over
    known = state.body["received"]
    assert (state.status, known) == (400, END + (4 if method == "log" else 0))
    pause.end()
    assert (await late).status == 500
    # A late chunk with its offset was on the disk when the lease was taken over, as if its answer had been lost.
    content = FILE[:END] + OTHER[END:known] + FILE[known:]
    await replicas.finish(caller, known, content)


async def test_a_holder_whose_files_a_take_over_removed_has_lost_its_lease(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await start(replicas)
    pause = Pause(monkeypatch, PartFile, "sync", "after")
    late = asyncio.create_task(replicas.send(caller, END, END + 4))
    await pause.reached()
    await replicas.expire_lease(caller)
    assert (await replicas.send(caller, END, END + 4, second=True)).body["received"] == END + 4
    pause.end()
    assert ((await late).status, (await late).body["code"]) == (500, "dependency_unavailable")
    await replicas.finish(caller, END + 4)


@pytest.mark.parametrize("method", ["fdatasync", "write"])
async def test_an_offset_that_cannot_be_written_loses_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller, real = await start(replicas), getattr(os, method)

    def full(descriptor: int, *arguments: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == PROGRESS:
            raise OSError(errno.ENOSPC, "no room")
        return real(descriptor, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, method, full)
        refused = await replicas.send(caller, END, END + 4)
    assert (refused.status, refused.body["received"]) == (500, END)
    await replicas.finish(caller, END)


async def test_an_update_whose_answer_is_lost_takes_nothing_back(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, real = await start(replicas), MongoUploadStore.advance

    async def lost(store: MongoUploadStore, upload: Upload, *, keep: bool = False) -> None:
        await real(store, upload, keep=keep)
        raise AutoReconnect

    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "advance", lost)
        let_a_lease_be_uncertain(patched)
        assert (await replicas.send(caller, END, END + 4)).status == 500
    assert (await replicas.record(caller))["offset"] == END + 4
    await replicas.finish(caller, END + 4)


async def test_a_cancellation_waits_for_the_holder(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = await start(replicas)
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))
    await replicas.until_cancelled(caller)
    assert (await replicas.send(caller, END, END + 4)).status == 200  # before the cancellation is answered
    monkeypatch.setattr(KeptLeases, "take", lambda *_: None)  # The holder is paused.
    await replicas.expire_lease(caller)
    assert (await cancellation).status == 200
    late = await replicas.send(caller, END + 4, END + 8)
    assert (late.status, late.body["code"]) == (409, "transfer_cancelled")
    await replicas.expect_nothing(caller)


async def test_an_offset_written_before_a_failure_has_its_bytes(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, log = await start(replicas), PartFile.log

    def fail_after(file: PartFile) -> None:
        log(file)
        raise OSError(errno.EIO, "a fault of a test")

    with monkeypatch.context() as patched:
        patched.setattr(PartFile, "log", fail_after)
        patched.setattr(MongoUploadStore, "release", fail_to_release)
        assert (await replicas.send(caller, END, END + 4)).status == 500
    await replicas.expire_lease(caller)
    assert (await replicas.send(caller, END, END + 4, second=True)).body["received"] == END + 4
    await replicas.finish(caller, END + 4)


async def test_the_state_is_not_older_than_an_acknowledged_chunk(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await start(replicas)
    find, is_first = MongoUploadStore.find, True

    async def find_before(store: MongoUploadStore, tenant_id: str, file_id: str) -> Upload | None:
        nonlocal is_first
        found, was_first, is_first = await find(store, tenant_id, file_id), is_first, False
        if was_first:  # The record is outdated before the file is read.
            await replicas.expire_lease(caller)
            assert (await replicas.send(caller, END, END + 4, second=True)).body["received"] == END + 4
        return found

    monkeypatch.setattr(MongoUploadStore, "find", find_before)
    assert (await replicas.first.state(caller, "f")).body["received"] == END + 4


async def test_the_log_acknowledges_a_large_chunk_and_no_refused_one(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, content = make_uploader(), os.urandom(4 * LEAST)
    assert (await replicas.send(caller, 0, LEAST, content=content)).status == 200
    second = await replicas.send(caller, LEAST, 2 * LEAST, content=content)
    assert (second.body["received"], (await replicas.record(caller))["offset"]) == (2 * LEAST, LEAST)
    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "release", fail_to_release)
        too_long = await replicas.send(caller, 2 * LEAST, 3 * LEAST + 1, content=content, end=3 * LEAST - 1)
    assert too_long.status >= 400
    assert (await replicas.second.state(caller, "f")).body["received"] == 2 * LEAST
    await replicas.expire_lease(caller)
    await replicas.finish(caller, 2 * LEAST, content)
