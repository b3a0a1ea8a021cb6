"""Chunks are stored once and in order (section 4.5)."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientError

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.upload import UploadApi, form, make_uploader, serving_uploads, settings_for, sha256
from tests.support.tables import each
from upload_service.model import Upload
from upload_service.uploads.store import MongoUploadStore

FILE = bytes(range(256)) * 4
SIZE = len(FILE)
HALF = SIZE // 2
PART = b'--b\r\nContent-Disposition: form-data; name="chunk"\r\n\r\n'


async def send(
    api: UploadApi, caller: Caller, start: int, end: int, *, content: bytes = FILE, name: str = "c"
) -> Answer:
    """Send a part of the file as a chunk of `f`."""
    return await api.chunk(caller, "f", content[start:end], start, len(content), name=name)


async def half_sent_caller(api: UploadApi) -> Caller:
    """A tenant whose transfer `f` has the first half of the file."""
    caller = make_uploader()
    assert (await send(api, caller, 0, HALF)).status == 200
    return caller


async def expect_refused(api: UploadApi, caller: Caller, answer: Answer, code: str = "") -> None:
    """Expect a refusal of a chunk that names the expected byte, and a transfer that is still half sent."""
    assert answer.status == 400, answer.body
    assert answer.body["code"] == code or not code
    assert f"byte {HALF} of {SIZE} is expected" in answer.body["detail"]
    assert (answer.body["received"], answer.body["total"]) == (HALF, SIZE)
    await expect_half(api, caller)


async def expect_half(api: UploadApi, caller: Caller) -> None:
    assert (await api.state(caller, "f")).body["received"] == HALF
    assert api.part(caller, "f").read_bytes() == FILE[:HALF]


async def test_chunks_make_the_file_that_was_sent(api: UploadApi) -> None:
    caller = make_uploader()
    first = await send(api, caller, 0, HALF, name="setup.msi")
    assert first.body == {"Message": "Chunk received", "received": HALF, "total": SIZE, "complete": False}
    assert (await api.state(caller, "f")).body == first.body
    assert api.files(caller) == ["progress", "upload_f.part"]
    last = await send(api, caller, HALF, SIZE, name="setup.msi")
    name = last.body["server_filename"]
    assert last.body == {
        "Message": "Upload complete",
        "received": SIZE,
        "total": SIZE,
        "complete": True,
        "sha256": sha256(FILE),
        "server_filename": name,
    }
    assert (await api.state(caller, "f")).body == last.body
    assert name.endswith(".msi")
    assert api.files(caller) == [name]
    assert (api.folder / caller.tenant_id / name).read_bytes() == FILE


async def test_a_chunk_is_synced_before_it_is_acknowledged(api: UploadApi, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, steps = make_uploader(), list[str]()
    fsync, advance, complete = os.fsync, MongoUploadStore.advance, MongoUploadStore.complete

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        if os.fstat(descriptor).st_ino in {path.stat().st_ino for path in api.folder.rglob("*.part")}:
            steps.append("file on the disk")

    async def record(store: MongoUploadStore, upload: Upload, **options: bool) -> object:
        steps.append(f"record at {upload.offset}")
        return await (complete if upload.offset == SIZE else advance)(store, upload, **options)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(MongoUploadStore, "advance", record)
    monkeypatch.setattr(MongoUploadStore, "complete", record)
    await send(api, caller, 0, HALF)
    await send(api, caller, HALF, SIZE)
    assert steps == ["file on the disk", f"record at {HALF}", "file on the disk", f"record at {SIZE}"]


async def test_an_unknown_transfer_is_not_found(api: UploadApi) -> None:
    answer = await api.state(make_uploader(), "f")
    assert (answer.status, answer.body["code"]) == (404, "transfer_not_found")


@each(("start", "end"), [(0, HALF), (10, 20)])
async def test_a_repeated_chunk_gets_the_same_response(api: UploadApi, start: int, end: int) -> None:
    caller = await half_sent_caller(api)
    again = await send(api, caller, start, end)
    assert (again.status, again.body["received"]) == (200, HALF)
    await expect_half(api, caller)


async def test_after_completion_only_a_repeated_chunk_is_accepted(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    last = await send(api, caller, HALF, SIZE)
    for again in (await send(api, caller, HALF, SIZE), await send(api, caller, 0, HALF)):
        assert (again.status, again.body) == (200, last.body)
    other = await send(api, caller, 0, HALF, content=bytes(SIZE))
    other_total = await send(api, caller, 0, HALF, content=FILE + b"x")
    assert (other.status, other_total.status) == (400, 400)
    assert api.files(caller) == [last.body["server_filename"]]


@each(
    ("start", "data", "total"),
    [
        (HALF + 1, FILE[:10], SIZE),
        (HALF - 1, FILE[HALF - 1 : HALF + 9], SIZE),
        (0, FILE, SIZE),
        (0, FILE[1 : HALF + 1], SIZE),
        (HALF, FILE[:10], SIZE + 1),
        (0, FILE[:HALF], SIZE - 1),
    ],
    ids=["gap", "overlap", "overlap from 0", "other bytes", "other total", "again, with another total"],
)
async def test_a_chunk_that_does_not_continue_is_refused(api: UploadApi, start: int, data: bytes, total: int) -> None:
    caller = await half_sent_caller(api)
    await expect_refused(api, caller, await api.chunk(caller, "f", data, start, total), "unexpected_chunk")


@each("length", [1, 99, 101, HALF, 5 << 20])
async def test_a_body_shorter_or_longer_than_its_range_is_refused(api: UploadApi, length: int) -> None:
    caller = await half_sent_caller(api)
    answer = await api.chunk(caller, "f", bytes(length), HALF, SIZE, end=HALF + 99)
    await expect_refused(api, caller, answer, "unexpected_chunk")
    assert (await send(api, caller, HALF, SIZE)).body["sha256"] == sha256(FILE)


async def test_a_refused_first_chunk_creates_no_transfer(api: UploadApi) -> None:
    caller = make_uploader()
    in_the_middle = await send(api, caller, HALF, SIZE)
    short = await api.chunk(caller, "f", FILE[:10], 0, SIZE, end=49)
    for answer in (in_the_middle, short):
        assert (answer.status, answer.body["received"]) == (400, 0)
        assert f"byte 0 of {SIZE} is expected" in answer.body["detail"]
    malformed = await api.send(caller, "f", "bytes 0-1", form(("chunk", b"x", "c")))
    assert (malformed.status, malformed.body["received"]) == (400, 0)
    assert "byte 0 is expected" in malformed.body["detail"]
    assert (await api.state(caller, "f")).status == 404
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))
    assert (await send(api, caller, 0, SIZE)).body["complete"]


async def test_bytes_after_the_offset_are_truncated(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    with api.part(caller, "f").open("ab") as file:
        file.write(bytes(2 * SIZE))  # left by a process that died before it acknowledged them
    last = await send(api, caller, HALF, SIZE)
    assert (api.folder / caller.tenant_id / last.body["server_filename"]).read_bytes() == FILE


async def test_acknowledged_bytes_that_are_gone_are_reported(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    os.truncate(api.part(caller, "f"), 10)
    answer = await send(api, caller, HALF, SIZE)
    assert (answer.status, answer.body["code"]) == (500, "transfer_damaged")


async def test_the_digest_is_right_if_another_process_saw_a_chunk(mongo_url: str, tmp_path: Path) -> None:
    settings, caller = settings_for(mongo_url, tmp_path), make_uploader()
    async with serving_uploads(settings) as first:
        await send(first, caller, 0, HALF)
    async with serving_uploads(settings) as second:
        assert (await send(second, caller, HALF, SIZE)).body["sha256"] == sha256(FILE)


async def send_raw(api: UploadApi, caller: Caller, end: int, body: bytes | AsyncIterator[bytes]) -> Answer:
    """Send a body as the chunk from `HALF` up to but not including `end`."""
    headers = {
        "X-File-ID": "f",
        "Content-Range": f"bytes {HALF}-{end - 1}/{SIZE}",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    return await api.service.call(caller, "POST", "upload_package_version", headers=headers, data=body)


async def test_a_body_that_ends_early_does_not_change_the_offset(api: UploadApi) -> None:
    caller = await half_sent_caller(api)

    async def broken() -> AsyncIterator[bytes]:
        yield PART + FILE[HALF : HALF + 10]
        raise ConnectionResetError

    with pytest.raises((ClientError, ConnectionResetError)):
        await send_raw(api, caller, SIZE, broken())
    assert (await send(api, caller, HALF, SIZE)).body["sha256"] == sha256(FILE)


@each(
    "body",
    [
        b"",
        b"--b--\r\n",
        b"no multipart at all",
        PART + b"x" * 100,
        PART.replace(b"chunk", b"other") + b"x" * 100 + b"\r\n--b--\r\n",
        PART + b"x" * 50 + b"\r\n" + PART + b"x" * 50 + b"\r\n--b--\r\n",
    ],
    ids=["nothing", "no part", "garbage", "no end", "another part", "two chunks"],
)
async def test_a_malformed_body_is_refused(api: UploadApi, body: bytes) -> None:
    caller = await half_sent_caller(api)
    await expect_refused(api, caller, await send_raw(api, caller, HALF + 100, body))


@each("content_range", ["bytes */9", "bytes 5-1/9", "chunks 0-1/2"])
async def test_a_malformed_range_is_answered_with_the_expected_byte(api: UploadApi, content_range: str) -> None:
    caller = await half_sent_caller(api)
    await expect_refused(api, caller, await api.send(caller, "f", content_range, form(("chunk", b"x", "c"))))


@each(
    ("parts", "status"),
    [
        ((("chunk", FILE, None),), 200),
        ((("before", "x", None), ("chunk", FILE, None), ("after", "y", "y.txt")), 200),
        ((("before", "x" * 100_000, None), ("chunk", FILE, None)), 413),
    ],
    ids=["no file name", "other parts", "long other parts"],
)
async def test_other_parts_of_the_body_are_ignored_if_they_are_short(
    api: UploadApi, parts: tuple[tuple[str, bytes | str, str | None], ...], status: int
) -> None:
    answer = await api.send(make_uploader(), "f", f"bytes 0-{SIZE - 1}/{SIZE}", form(*parts))
    assert (answer.status, answer.body.get("sha256")) == (status, sha256(FILE) if status == 200 else None)


@each("missing", ["X-File-ID", "Content-Range"])
async def test_both_headers_are_required(api: UploadApi, missing: str) -> None:
    headers = {"X-File-ID": "f", "Content-Range": "bytes 0-0/1"}
    del headers[missing]
    body = form(("chunk", b"x", "c"))
    answer = await api.service.call(make_uploader(), "POST", "upload_package_version", headers=headers, data=body)
    assert answer.status == 400
    assert missing in answer.body["detail"]


@each("file_id", ["../../x", ".."])
async def test_a_file_id_cannot_leave_the_tenants_folder(api: UploadApi, file_id: str) -> None:
    caller = make_uploader()
    assert (await api.chunk(caller, file_id, FILE, 0, SIZE)).status == 400
    assert (await api.state(caller, file_id)).status == 400
    assert api.files(caller) == []


async def test_one_file_id_in_two_tenants_never_mixes(api: UploadApi) -> None:
    first, second = await half_sent_caller(api), make_uploader()
    assert (await api.state(second, "f")).status == 404
    await send(api, second, 0, SIZE, content=FILE[::-1])
    assert (await send(api, first, HALF, SIZE)).body["sha256"] == sha256(FILE)
    assert (await api.state(second, "f")).body["sha256"] == sha256(FILE[::-1])


async def test_concurrent_equal_chunks_are_written_once(api: UploadApi) -> None:
    caller = make_uploader()
    answers = await asyncio.gather(*(send(api, caller, 0, SIZE) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.body["server_filename"] for answer in answers} == set(api.files(caller))
    assert await api.usage(caller) == (0, SIZE)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "the system's own quota"])
async def test_a_transfer_continues_after_a_full_disk(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    caller = await half_sent_caller(api)

    def full(*_: object) -> int:
        raise OSError(number, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        answer = await send(api, caller, HALF, SIZE)
    assert (answer.status, answer.body["code"]) == (500, "storage_full")
    await expect_half(api, caller)
    assert (await send(api, caller, HALF, SIZE)).body["sha256"] == sha256(FILE)


async def test_the_service_answers_nothing_without_the_gateways_token(api: UploadApi) -> None:
    address = f"{api.service.address}/acme/upload_package_version"
    async with api.service.session.get(address, headers={"X-File-ID": "f"}) as response:
        assert response.status == 401
