"""A process continues the transfer of another process that ended in any way."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from common.auth.internal_tokens import Caller
from common.events import LocalEvents
from common.mongo import MongoDatabase
from common.work import WorkQueue
from tests.support.services.replicas import FILE, HALF, Replicas, two_replicas
from tests.support.services.upload import make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.model import StorageFull, Upload
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import Digest, PartFiles

OTHER = FILE[:HALF] + FILE[:HALF]


@pytest.fixture
async def replicas(settings: UploadSettings) -> AsyncIterator[Replicas]:
    """Two services for one test that needs special settings."""
    async with two_replicas(settings) as both:
        yield both


async def expire_lease(replicas: Replicas, caller: Caller) -> None:
    """Let the lease of the holder expire, who is paused or has died."""
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    record = {"tenant_id": caller.tenant_id, "file_id": "f"}
    await replicas.database["uploads"].update_one(record, {"$set": {"lease_until": expired_at}})


async def test_a_sender_without_its_lease_changes_nothing(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    slow = await replicas.stall_chunk(caller, HALF)
    await expire_lease(replicas, caller)
    quarter = HALF + HALF // 2
    first = await replicas.second.chunk(caller, "f", OTHER[HALF:quarter], HALF, len(FILE))
    assert (first.status, first.body["received"]) == (200, quarter)
    late = await slow.resume()
    assert (late.status, late.body["code"]) == (500, "dependency_unavailable")
    last = await replicas.second.chunk(caller, "f", OTHER[quarter:], quarter, len(FILE))
    assert last.body["sha256"] == sha256(OTHER)
    name = last.body["server_filename"]
    assert (replicas.first.folder / caller.tenant_id / name).read_bytes() == OTHER
    assert replicas.first.files(caller) == [name]


async def test_a_sender_without_its_lease_cannot_finish_the_file(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    slow = await replicas.stall_chunk(caller, HALF)
    await expire_lease(replicas, caller)
    last = await replicas.second.chunk(caller, "f", OTHER[HALF:], HALF, len(FILE))
    late = await slow.resume()
    assert (last.status, late.status) == (200, 500)
    assert (await replicas.first.state(caller, "f")).body == last.body
    assert (replicas.first.folder / caller.tenant_id / last.body["server_filename"]).read_bytes() == OTHER
    assert await replicas.first.usage(caller) == (0, len(FILE))


async def test_a_failed_takeover_keeps_the_acknowledged_bytes(replicas: Replicas) -> None:
    caller = await replicas.start_transfer()
    slow = await replicas.stall_chunk(caller, HALF)
    await expire_lease(replicas, caller)
    short = await replicas.second.chunk(caller, "f", OTHER[HALF : HALF + 10], HALF, len(FILE), end=len(FILE) - 1)
    assert (short.status, short.body["received"]) == (400, HALF)
    assert (await slow.resume()).status == 500
    last = await replicas.second.chunk(caller, "f", OTHER[HALF:], HALF, len(FILE))
    assert last.body["sha256"] == sha256(OTHER)
    assert replicas.first.files(caller) == [last.body["server_filename"]]


class Pause:
    """Blocks the first worker thread that calls a method of `PartFiles` until the test releases it."""

    def __init__(self, patched: pytest.MonkeyPatch, method: str) -> None:
        self._inside, self._go_on = threading.Event(), threading.Event()
        real = getattr(PartFiles, method)

        def stopping(*arguments: object) -> object:
            if not self._inside.is_set():
                self._inside.set()
                self._go_on.wait(60)
            return real(*arguments)

        patched.setattr(PartFiles, method, stopping)

    async def reached(self) -> None:
        await asyncio.to_thread(self._inside.wait, 60)

    def end(self) -> None:
        self._go_on.set()


async def test_a_lost_takeover_removes_no_file_of_its_successor(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await replicas.start_transfer()
    await replicas.lease_released(caller)
    await expire_lease(replicas, caller)  # The previous holder has died.
    pause, quarter = Pause(monkeypatch, "copy"), HALF + HALF // 2
    stale = asyncio.create_task(replicas.first.chunk(caller, "f", FILE[HALF:quarter], HALF, len(FILE)))
    await pause.reached()
    await expire_lease(replicas, caller)
    answer = await replicas.second.chunk(caller, "f", FILE[HALF:quarter], HALF, len(FILE))
    pause.end()
    assert (answer.status, (await stale).status) == (200, 500)
    last = await replicas.second.chunk(caller, "f", FILE[quarter:], quarter, len(FILE))
    assert (last.status, last.body.get("sha256")) == (200, sha256(FILE))
    assert replicas.first.files(caller) == [last.body["server_filename"]]


async def test_a_delayed_cleanup_keeps_the_file_of_a_later_takeover(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await replicas.start_transfer()
    await replicas.lease_released(caller)
    await expire_lease(replicas, caller)
    pause, quarter = Pause(monkeypatch, "remove_older"), HALF + HALF // 2
    slow = asyncio.create_task(replicas.first.chunk(caller, "f", FILE[HALF:quarter], HALF, len(FILE)))
    await pause.reached()
    await expire_lease(replicas, caller)
    answer = await replicas.second.chunk(caller, "f", FILE[HALF:quarter], HALF, len(FILE))
    pause.end()
    assert (answer.status, (await slow).status) == (200, 500)
    last = await replicas.second.chunk(caller, "f", FILE[quarter:], quarter, len(FILE))
    assert (last.status, last.body.get("sha256")) == (200, sha256(FILE))


async def test_a_copy_is_kept_when_its_chunk_fails(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, copies = await replicas.start_transfer(), list[int]()
    await replicas.lease_released(caller)
    await expire_lease(replicas, caller)
    real = PartFiles.copy

    def counted_copy(parts: PartFiles, upload: Upload, part: int) -> Digest:
        copies.append(part)
        return real(parts, upload, part)

    monkeypatch.setattr(PartFiles, "copy", counted_copy)
    for _ in range(3):
        short = await replicas.second.chunk(caller, "f", FILE[HALF : HALF + 10], HALF, len(FILE), end=len(FILE) - 1)
        assert short.status == 400
    last = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (last.body["sha256"], len(copies)) == (sha256(FILE), 1)


def test_a_copy_on_a_full_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, upload = (
        PartFiles(tmp_path),
        Upload("acme", "f", "id", 2 * len(FILE), offset=len(FILE), fence=2, needs_copy=True),
    )
    with closing(parts.open(replace(upload, offset=0), None)) as file:
        file.write([FILE])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageFull):
        parts.copy(upload, 2)
    assert [path.parent.name for path in tmp_path.rglob("*.part")] == ["id.0"]


def test_files_of_a_deleted_transfer_with_a_freed_id_are_removed(tmp_path: Path) -> None:
    parts, upload = PartFiles(tmp_path), Upload("acme", "f", "id", len(FILE))
    with closing(parts.open(upload, None)) as file:
        file.write([FILE])
    parts.remove(replace(upload, file_id="~id", original_file_id="f"))
    assert list(tmp_path.rglob("*id*")) == []


async def complete_before_rename(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> tuple[Caller, str]:
    """The server filename of a complete file whose process died before the rename."""
    caller = await replicas.start_transfer()

    async def die(*_: object) -> None:
        raise RuntimeError("the process has died")

    with monkeypatch.context() as patched:
        patched.setattr(FolderStorage, "finalize", die)
        assert (await replicas.first.chunk(caller, "f", FILE[HALF:], HALF, len(FILE), name="setup.exe")).status == 500
    assert replicas.first.files(caller) == ["progress", "upload_f.part"]
    return caller, (await replicas.second.state(caller, "f")).body["server_filename"]


@pytest.fixture
def no_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkQueue, "lease", AsyncMock(return_value=None))


@pytest.mark.usefixtures("no_announcements")
async def test_a_complete_file_is_served_after_a_crash_before_its_rename(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, name = await complete_before_rename(replicas, monkeypatch)
    assert (await replicas.second.claim(caller, name)).status == 200
    assert (await replicas.second.get(replicas.second.address(caller, name))).body == FILE


@pytest.mark.usefixtures("no_announcements")
async def test_a_resent_last_chunk_succeeds_after_a_crash_before_the_rename(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, name = await complete_before_rename(replicas, monkeypatch)
    again = await replicas.second.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (again.status, again.body["server_filename"]) == (200, name)


async def test_the_announcement_renames_a_file_after_a_crash(settings: UploadSettings, database: MongoDatabase) -> None:
    caller = make_uploader()
    with pytest.MonkeyPatch.context() as patched:

        async def die(*_: object) -> None:
            raise RuntimeError("the process has died")

        async def announced() -> bool:
            return await database["uploads"].count_documents({"work.announce": {"$exists": True}}) == 0

        patched.setattr(FolderStorage, "finalize", die)
        async with serving_uploads(settings, LocalEvents()) as api:
            assert (await api.chunk(caller, "f", FILE, 0, len(FILE))).status == 500
    async with serving_uploads(settings) as api:
        await until(announced)
        assert api.files(caller) == [api.announced[0].data["server_filename"]]
