"""Chunks in the middle of a transfer are acknowledged by its log of offsets, and none of them is ever lost."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from common.auth.internal_tokens import Caller
from common.http.zero_copy.socket_body import LEAST
from tests.support.api import Answer
from tests.support.services.replicas import FILE, HALF, Replicas, two_replicas
from tests.support.services.upload import make_uploader, sha256
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.settings import UploadSettings
from upload_service.storage.part_files import PROGRESS, PartFile, PartFiles
from upload_service.uploads.session import KeptLeases
from upload_service.uploads.store import MongoUploadStore

LONG = 3600.0  # seconds
STEP = HALF // 4
OTHER = bytes(byte ^ 1 for byte in FILE)


@pytest.fixture
async def replicas(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    """Two services; their leases are certain until a test ends them."""
    monkeypatch.setattr("upload_service.uploads.session.IDLE_SECONDS", LONG)
    monkeypatch.setattr("upload_service.uploads.store.KEPT_SECONDS", LONG)
    monkeypatch.setattr("upload_service.uploads.store.CERTAIN_SECONDS", LONG)
    async with two_replicas(settings) as both:
        yield both


async def send(replicas: Replicas, caller: Caller, start: int, end: int, *, second: bool = False) -> Answer:
    api = replicas.second if second else replicas.first
    return await api.chunk(caller, "f", FILE[start:end], start, len(FILE))


async def start(replicas: Replicas, chunks: int = 2) -> Caller:
    """Start a transfer whose chunks after `HALF` are acknowledged by the log of offsets."""
    caller = await replicas.start_transfer()
    for number in range(chunks):
        answer = await send(replicas, caller, HALF + number * STEP, HALF + (number + 1) * STEP)
        assert (answer.status, answer.body["received"]) == (200, HALF + (number + 1) * STEP)
    return caller


async def record(replicas: Replicas, caller: Caller) -> dict[str, Any]:
    found = await replicas.database["uploads"].find_one({"tenant_id": caller.tenant_id})
    assert found is not None
    return found


async def expire(replicas: Replicas, caller: Caller) -> None:
    """Let the lease of the holder expire, who is paused or has died."""
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    await replicas.database["uploads"].update_one(
        {"tenant_id": caller.tenant_id}, {"$set": {"lease_until": expired_at}}
    )


async def fail_to_release(*_: object) -> bool:
    raise AutoReconnect


def progress_of(replicas: Replicas, caller: Caller) -> Path:
    return replicas.first.part(caller, "f").with_name(PROGRESS)


async def check_rest(replicas: Replicas, caller: Caller, position: int) -> None:
    """Send the rest to the second replica, and compare the file."""
    last = await send(replicas, caller, position, len(FILE), second=True)
    assert (last.status, last.body.get("sha256")) == (200, sha256(FILE)), last.body
    name = last.body["server_filename"]
    assert (replicas.first.folder / caller.tenant_id / name).read_bytes() == FILE
    assert replicas.first.files(caller) == [name]


async def test_a_chunk_in_the_middle_needs_no_update(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, calls = await replicas.start_transfer(), list[str]()
    for name in ("acquire_lease", "find", "create", "renew", "release", "advance"):
        real = getattr(MongoUploadStore, name)

        def counted(*arguments: object, _name: str = name, _real: Any = real, **options: object) -> object:
            calls.append(_name)
            return _real(*arguments, **options)

        monkeypatch.setattr(MongoUploadStore, name, counted)
    assert (await send(replicas, caller, HALF, HALF + STEP)).body["received"] == HALF + STEP
    assert calls == []


async def test_an_acknowledged_chunk_survives_its_replica(replicas: Replicas) -> None:
    caller = await start(replicas)
    assert (await record(replicas, caller))["offset"] == HALF
    await expire(replicas, caller)
    await check_rest(replicas, caller, HALF + 2 * STEP)


async def test_a_replica_sees_what_another_one_acknowledged(replicas: Replicas) -> None:
    caller = await start(replicas)
    state = await replicas.second.state(caller, "f")
    assert state.body["received"] == HALF + 2 * STEP
    malformed = await replicas.second.chunk(caller, "f", b"x", 5, 3)
    assert (malformed.status, malformed.body["received"]) == (400, HALF + 2 * STEP)


async def test_a_take_over_compares_a_resent_chunk(replicas: Replicas) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    await expire(replicas, caller)
    assert (await send(replicas, caller, end - STEP, end, second=True)).body["received"] == end
    other = await replicas.second.chunk(caller, "f", OTHER[end - STEP : end], end - STEP, len(FILE))
    assert (other.status, other.body["received"]) == (400, end)
    await check_rest(replicas, caller, end)


async def test_a_take_over_that_refuses_its_chunk_keeps_the_offset(replicas: Replicas) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    await expire(replicas, caller)
    gap = await send(replicas, caller, end + 1, end + 2, second=True)
    assert (gap.status, gap.body["received"], (await record(replicas, caller))["offset"]) == (400, end, end)
    await check_rest(replicas, caller, end)


@pytest.mark.parametrize("method", ["progress", "copy"])
async def test_the_offset_survives_a_take_over_that_dies(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    await expire(replicas, caller)

    def die(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(PartFiles, method, die)
        with pytest.raises(Exception, match="disconnected"):
            await send(replicas, caller, end, end + 1, second=True)
    await expire(replicas, caller)
    await check_rest(replicas, caller, end)


async def test_a_released_lease_puts_the_offset_in_the_record(replicas: Replicas) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    assert (await send(replicas, caller, end + 1, end + 2)).status == 400  # releases it
    left = await record(replicas, caller)
    assert left["offset"] == end
    await check_rest(replicas, caller, end)
    assert (await record(replicas, caller))["fence"] == 2


async def test_the_record_follows_after_a_while(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.uploads.store.CERTAIN_SECONDS", 0)
    caller = await start(replicas)
    assert (await record(replicas, caller))["offset"] == HALF + 2 * STEP


async def test_a_torn_entry_loses_only_the_chunk_being_written(replicas: Replicas) -> None:
    caller = await start(replicas, 3)
    log = progress_of(replicas, caller)
    log.write_bytes(log.read_bytes()[:-1])
    await expire(replicas, caller)
    state = await send(replicas, caller, HALF + 3 * STEP, len(FILE), second=True)
    assert (state.status, state.body["received"]) == (400, HALF + 2 * STEP)
    await check_rest(replicas, caller, HALF + 2 * STEP)


async def test_a_log_lost_with_its_folder_is_a_damaged_transfer(replicas: Replicas) -> None:
    caller = await start(replicas)
    shutil.rmtree(progress_of(replicas, caller).parent)
    await expire(replicas, caller)
    assert (await send(replicas, caller, HALF, len(FILE), second=True)).status == 500


class Pause:
    """Blocks the first worker thread after a method until the test releases it."""

    def __init__(self, patched: pytest.MonkeyPatch, owner: type, method: str) -> None:
        self._inside, self._go_on = threading.Event(), threading.Event()
        real = getattr(owner, method)

        def stopping(*arguments: object) -> object:
            result = real(*arguments)
            if not self._inside.is_set():
                self._inside.set()
                self._go_on.wait(60)
            return result

        patched.setattr(owner, method, stopping)

    async def reached(self) -> None:
        await asyncio.to_thread(self._inside.wait, 60)

    def end(self) -> None:
        self._go_on.set()


@pytest.mark.parametrize(
    ("owner", "method"),
    [(PartFile, "write"), (PartFile, "sync"), (PartFile, "log")],
    ids=["data written", "data on disk", "before its acknowledgement"],
)
async def test_a_late_holder_acknowledges_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    pause = Pause(monkeypatch, owner, method)
    late = asyncio.create_task(replicas.first.chunk(caller, "f", OTHER[end : end + 4], end, len(FILE)))
    await pause.reached()
    await expire(replicas, caller)
    monkeypatch.setattr("upload_service.uploads.session.clock", lambda: 2 * LONG + os.times().elapsed)
    state = await replicas.second.chunk(caller, "f", b"", end, len(FILE), end=end)  # takes over
    known = state.body["received"]
    assert (state.status, known) == (400, end + (4 if method == "log" else 0))
    pause.end()
    assert (await late).status == 500
    if known == end:
        await check_rest(replicas, caller, end)
        return
    # The late chunk was on the disk as a whole when the lease was taken over, as if its answer had been lost.
    content = OTHER[end:known] + FILE[known:]
    last = await replicas.second.chunk(caller, "f", content, end, len(FILE))
    assert (last.status, last.body["received"]) == (400, known)
    last = await replicas.second.chunk(caller, "f", FILE[known:], known, len(FILE))
    assert last.body["sha256"] == sha256(FILE[:end] + content)


@pytest.mark.parametrize("method", ["fdatasync", "write"])
async def test_an_offset_that_cannot_be_written_loses_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller, end, real = await start(replicas), HALF + 2 * STEP, getattr(os, method)

    def full(descriptor: int, *arguments: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == PROGRESS:
            raise OSError(errno.ENOSPC, "no room")
        return real(descriptor, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, method, full)
        refused = await send(replicas, caller, end, end + 4)
    assert (refused.status, refused.body["received"]) == (500, end)
    await check_rest(replicas, caller, end)


async def test_an_update_whose_answer_is_lost_takes_nothing_back(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, end, real = await start(replicas), HALF + 2 * STEP, MongoUploadStore.advance

    async def lost(store: MongoUploadStore, upload: Upload, *, keep: bool = False) -> None:
        await real(store, upload, keep=keep)
        raise AutoReconnect

    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "advance", lost)
        patched.setattr("upload_service.uploads.session.clock", lambda: 2 * LONG + os.times().elapsed)
        assert (await send(replicas, caller, end, end + 4)).status == 500
    left = await record(replicas, caller)
    assert left["offset"] == end + 4
    await check_rest(replicas, caller, end + 4)


async def test_a_cancellation_waits_for_the_holder(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    cancellation = asyncio.create_task(replicas.second.cancel(caller, "f"))

    async def is_cancelled() -> bool:
        return bool((await record(replicas, caller))["cancelled"])

    await until(is_cancelled)
    assert (await send(replicas, caller, end, end + 4)).status == 200  # before the cancellation is answered
    monkeypatch.setattr(KeptLeases, "take", lambda *_: None)  # The holder is paused.
    await expire(replicas, caller)
    assert (await cancellation).status == 200
    late = await send(replicas, caller, end + 4, end + 8)
    assert (late.status, late.body["code"]) == (409, "transfer_cancelled")
    assert (replicas.first.files(caller), await replicas.first.usage(caller)) == ([], (0, 0))


async def test_a_take_over_that_cannot_read_the_offset_keeps_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    await expire(replicas, caller)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "a fault of a test")

    with monkeypatch.context() as patched:
        patched.setattr(PartFiles, "progress", fail)
        assert (await send(replicas, caller, end, end + 1, second=True)).status == 500
    await check_rest(replicas, caller, end)


async def test_an_offset_written_before_a_failure_has_its_bytes(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, end, log = await start(replicas), HALF + 2 * STEP, PartFile.log

    def fail_after(file: PartFile) -> None:
        log(file)
        raise OSError(errno.EIO, "a fault of a test")

    with monkeypatch.context() as patched:
        patched.setattr(PartFile, "log", fail_after)
        patched.setattr(MongoUploadStore, "release", fail_to_release)
        assert (await send(replicas, caller, end, end + 4)).status == 500
    await expire(replicas, caller)
    assert (await send(replicas, caller, end, end + 4, second=True)).body["received"] == end + 4
    await check_rest(replicas, caller, end + 4)


async def test_a_holder_whose_files_a_take_over_removed_has_lost_its_lease(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    pause = Pause(monkeypatch, PartFile, "sync")
    late = asyncio.create_task(send(replicas, caller, end, end + 4))
    await pause.reached()
    await expire(replicas, caller)
    assert (await send(replicas, caller, end, end + 4, second=True)).body["received"] == end + 4
    pause.end()
    refused = await late
    assert (refused.status, refused.body["code"]) == (500, "dependency_unavailable")
    await check_rest(replicas, caller, end + 4)


async def test_the_state_is_not_older_than_an_acknowledged_chunk(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, end = await start(replicas), HALF + 2 * STEP
    find, is_first = MongoUploadStore.find, True

    async def find_before(store: MongoUploadStore, tenant_id: str, file_id: str) -> Upload | None:
        nonlocal is_first
        found, was_first, is_first = await find(store, tenant_id, file_id), is_first, False
        if was_first:  # The record is outdated before the file is read.
            await expire(replicas, caller)
            assert (await send(replicas, caller, end, end + 4, second=True)).body["received"] == end + 4
        return found

    monkeypatch.setattr(MongoUploadStore, "find", find_before)
    assert (await replicas.first.state(caller, "f")).body["received"] == end + 4


async def start_large(replicas: Replicas) -> tuple[Caller, bytes]:
    """Start a transfer of three large chunks with the first one."""
    caller, content = make_uploader(), os.urandom(3 * LEAST)
    assert (await replicas.first.chunk(caller, "f", content[:LEAST], 0, len(content))).status == 200
    return caller, content


async def test_a_large_chunk_is_acknowledged_by_the_log(replicas: Replicas) -> None:
    caller, content = await start_large(replicas)
    second = await replicas.first.chunk(caller, "f", content[LEAST : 2 * LEAST], LEAST, len(content))
    assert (second.body["received"], (await record(replicas, caller))["offset"]) == (2 * LEAST, LEAST)
    await expire(replicas, caller)
    last = await replicas.second.chunk(caller, "f", content[2 * LEAST :], 2 * LEAST, len(content))
    assert last.body["sha256"] == sha256(content)


async def test_a_large_chunk_that_is_refused_leaves_no_offset(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, content = await start_large(replicas)
    with monkeypatch.context() as patched:
        patched.setattr(MongoUploadStore, "release", fail_to_release)
        too_long = content[LEAST : 2 * LEAST + 1]
        refused = await replicas.first.chunk(caller, "f", too_long, LEAST, len(content), end=2 * LEAST - 1)
    assert refused.status >= 400
    assert (await replicas.second.state(caller, "f")).body["received"] == LEAST
