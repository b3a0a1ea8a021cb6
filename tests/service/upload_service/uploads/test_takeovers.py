"""A process continues the transfer of another process that ended in any way."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from common.auth.internal_tokens import Caller
from common.events import LocalEvents
from common.mongo import MongoDatabase
from common.work import WorkQueue
from tests.support.services.replicas import FILE, HALF, Pause, Replicas, two_replicas
from tests.support.services.upload import make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.model import StorageFull, Upload
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import Digest, PartFiles

QUARTER = HALF // 2
OTHER = FILE[:HALF] + FILE[:HALF]


@pytest.fixture
async def replicas(settings: UploadSettings) -> AsyncIterator[Replicas]:
    """Two services for one test."""
    async with two_replicas(settings) as both:
        yield both


@pytest.mark.parametrize("length", [QUARTER, HALF], ids=["in the middle", "last chunk"])
async def test_a_sender_without_its_lease_changes_nothing(replicas: Replicas, length: int) -> None:
    caller = await replicas.start_transfer()
    slow = await replicas.stall_chunk(caller, HALF)
    await replicas.expire_lease(caller)
    fresh = await replicas.send(caller, HALF, HALF + length, second=True, content=OTHER)
    assert (fresh.status, fresh.body["received"]) == (200, HALF + length)
    late = await slow.resume()
    assert (late.status, late.body["code"]) == (500, "dependency_unavailable")
    if length == HALF:
        assert (await replicas.first.state(caller, "f")).body == fresh.body
        replicas.expect_file(caller, fresh, OTHER)
    else:
        await replicas.finish(caller, HALF + length, OTHER)
    assert await replicas.first.usage(caller) == (0, len(FILE))


@pytest.mark.parametrize("method", ["copy", "remove_older"])
async def test_a_lost_takeover_removes_no_file_of_its_successor(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller = await replicas.start_transfer()
    await replicas.until_released(caller)
    await replicas.expire_lease(caller)  # The previous holder has died.
    pause = Pause(monkeypatch, PartFiles, method, "before")
    stale = asyncio.create_task(replicas.send(caller, HALF, HALF + QUARTER))
    await pause.reached()
    await replicas.expire_lease(caller)
    answer = await replicas.send(caller, HALF, HALF + QUARTER, second=True)
    pause.end()
    assert (answer.status, (await stale).status) == (200, 500)
    await replicas.finish(caller, HALF + QUARTER)


async def test_a_copy_is_kept_when_its_chunk_fails(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, copies = await replicas.start_transfer(), list[int]()
    await replicas.until_released(caller)
    await replicas.expire_lease(caller)
    real = PartFiles.copy

    def counted_copy(parts: PartFiles, upload: Upload, part: int) -> Digest:
        copies.append(part)
        return real(parts, upload, part)

    monkeypatch.setattr(PartFiles, "copy", counted_copy)
    for _ in range(3):
        short = await replicas.send(caller, HALF, HALF + 10, second=True, end=len(FILE) - 1)
        assert (short.status, short.body["received"]) == (400, HALF)
    await replicas.finish(caller, HALF)
    assert len(copies) == 1


def test_a_copy_on_a_full_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = PartFiles(tmp_path)
    upload = Upload("acme", "f", "id", 2 * len(FILE), offset=len(FILE), fence=2, needs_copy=True)
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


async def die(*_: object) -> None:
    raise RuntimeError("the process has died")


@pytest.fixture
async def unnamed(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> tuple[Caller, str]:
    """A complete file whose process died before the rename, and its server filename. No relay renames it."""
    monkeypatch.setattr(WorkQueue, "lease", AsyncMock(return_value=None))
    caller = await replicas.start_transfer()
    with monkeypatch.context() as patched:
        patched.setattr(FolderStorage, "finalize", die)
        assert (await replicas.send(caller, HALF, len(FILE), name="setup.exe")).status == 500
    assert replicas.first.files(caller) == ["progress", "upload_f.part"]
    return caller, (await replicas.second.state(caller, "f")).body["server_filename"]


async def test_a_complete_file_is_served_after_a_crash_before_its_rename(
    replicas: Replicas, unnamed: tuple[Caller, str]
) -> None:
    caller, name = unnamed
    assert (await replicas.second.claim(caller, name)).status == 200
    assert (await replicas.second.get(replicas.second.address(caller, name))).body == FILE


async def test_a_resent_last_chunk_succeeds_after_a_crash_before_the_rename(
    replicas: Replicas, unnamed: tuple[Caller, str]
) -> None:
    caller, name = unnamed
    again = await replicas.send(caller, HALF, len(FILE), second=True)
    assert (again.status, again.body["server_filename"]) == (200, name)


async def test_the_announcement_renames_a_file_after_a_crash(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()

    async def announced() -> bool:
        return await database["uploads"].count_documents({"work.announce": {"$exists": True}}) == 0

    with monkeypatch.context() as patched:
        patched.setattr(FolderStorage, "finalize", die)
        async with serving_uploads(settings, LocalEvents()) as api:
            assert (await api.chunk(caller, "f", FILE, 0, len(FILE))).status == 500
    async with serving_uploads(settings) as api:
        await until(announced)
        assert api.files(caller) == [api.announced[0].data["server_filename"]]
