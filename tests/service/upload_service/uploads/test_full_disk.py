"""A full disk loses no acknowledged byte and is reported; the transfer continues when there is space."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.settings import UploadSettings

MIB = 1 << 20
DISK = 4 * MIB
CHUNK = MIB // 4


@pytest.fixture
async def api(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UploadApi]:
    """A service on a disk of 4 MiB."""
    write = os.pwrite

    def limited_write(descriptor: int, data: bytes, offset: int) -> int:
        used = 0
        for path in settings.installers.rglob("*"):
            with suppress(FileNotFoundError):
                used += path.stat().st_size if path.is_file() else 0
        if used + len(data) > DISK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", limited_write)
    async with serving_uploads(settings) as served:
        yield served


async def send_from(api: UploadApi, caller: Caller, content: bytes, start: int) -> tuple[int, Answer]:
    """Send chunks until the last one or a refusal; returns the offset and the last response."""
    while True:
        answer = await api.chunk(caller, "f", content[start : start + CHUNK], start, len(content))
        if answer.status != 200 or answer.body["complete"]:
            return start, answer
        start = answer.body["received"]


async def test_a_transfer_continues_when_the_disk_has_space_again(api: UploadApi) -> None:
    caller, content = make_uploader(), os.urandom(3 * MIB)
    await api.claim(caller, await api.upload(caller, bytes(2 * MIB)), "v1")
    offset, refused = await send_from(api, caller, content, 0)
    assert 0 < offset < len(content)
    for answer in (refused, (await send_from(api, caller, content, offset))[1]):
        assert (answer.status, answer.body["code"]) == (500, "storage_full")
        assert "Retry-After" in answer.headers
        assert (answer.body["received"], answer.body["total"]) == (offset, len(content))
    assert (await api.state(caller, "f")).body["received"] == offset
    assert (await api.post(caller, "release_installers", version_uids=["v1"])).status == 200
    _, done = await send_from(api, caller, content, offset)
    assert (done.status, done.body["sha256"]) == (200, sha256(content))
    assert (await api.claim(caller, done.body["server_filename"], "v2")).status == 200
    assert (await api.get(api.address(caller, done.body["server_filename"]))).body == content
    assert await api.usage(caller) == (len(content), 0)


async def test_a_refused_file_on_a_full_disk_leaves_no_data_and_can_be_sent_again(api: UploadApi) -> None:
    caller, content = make_uploader(), os.urandom(2 * MIB)
    refused = await api.store(caller, ("file", bytes(DISK + 1), "a.exe"))
    assert (refused.status, refused.body["code"]) == (500, "storage_full")
    assert await api.usage(caller) == (0, 0)
    name = (await api.store(caller, ("file", bytes(3 * MIB), "a.exe"))).body["server_filename"]

    async def is_inspected() -> bool:  # A file that is being inspected takes its space until then.
        answer = await api.service.call(caller, "GET", "inspect_upload", name)
        return bool(answer.body["state"] != "waiting")

    await until(is_inspected)
    await api.claim(caller, name, "v1")
    refused = await api.chunk(caller, "f", content, 0, len(content))
    assert (refused.status, refused.body["code"]) == (500, "storage_full")
    assert await api.usage(caller) == (3 * MIB, 0)
    await api.post(caller, "release_installers", version_uids=["v1"])
    done = await api.chunk(caller, "f", content, 0, len(content))
    assert (done.status, done.body["sha256"]) == (200, sha256(content))


@pytest.mark.parametrize(
    "call", ["fsync", *(pytest.param(call, marks=pytest.mark.full) for call in ("pwrite", "rename"))]
)
async def test_the_last_chunk_can_be_resent_after_a_full_disk(
    settings: UploadSettings, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    caller, content = make_uploader(), os.urandom(1000)
    real: Callable[..., Any] = getattr(os, call)
    full = False

    def fail_with_full_disk(*arguments: Any, **keywords: Any) -> Any:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, call, fail_with_full_disk)
    async with serving_uploads(settings) as api:
        assert (await api.chunk(caller, "f", content[:600], 0, 1000)).status == 200
        full = True
        refused = await api.chunk(caller, "f", content[600:], 600, 1000)
        assert (refused.status, refused.body["code"]) == (500, "storage_full")
        full = False
        done = await api.chunk(caller, "f", content[600:], 600, 1000)
        assert (done.status, done.body["sha256"]) == (200, sha256(content))
        assert (await api.claim(caller, done.body["server_filename"])).status == 200
        assert (await api.get(api.address(caller, done.body["server_filename"]))).body == content
