"""Chunks are stored once and in order (section 4.5)."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientError

from common.auth.internal_tokens import Caller
from tests.support.services.upload import UploadApi, form, make_uploader, serving_uploads, settings_for, sha256
from upload_service.model import Upload
from upload_service.uploads.store import MongoUploadStore

FILE = bytes(range(256)) * 4
HALF = len(FILE) // 2


async def test_chunks_make_the_file_that_was_sent(api: UploadApi) -> None:
    caller = make_uploader()
    first = await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE), name="setup.msi")
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE), name="setup.msi")
    assert first.body == {"Message": "Chunk received", "received": HALF, "total": len(FILE), "complete": False}
    name = last.body.pop("server_filename")
    assert last.body == {
        "Message": "Upload complete",
        "received": len(FILE),
        "total": len(FILE),
        "complete": True,
        "sha256": sha256(FILE),
    }
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
        return await (complete if upload.offset == len(FILE) else advance)(store, upload, **options)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(MongoUploadStore, "advance", record)
    monkeypatch.setattr(MongoUploadStore, "complete", record)
    await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE))
    await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))

    assert steps == ["file on the disk", f"record at {HALF}", "file on the disk", f"record at {len(FILE)}"]


async def half_sent_caller(api: UploadApi) -> Caller:
    """A tenant whose transfer `f` has the first half of the file."""
    caller = make_uploader()
    assert (await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE))).status == 200
    return caller


async def has_offset(api: UploadApi, caller: Caller, offset: int) -> bool:
    """Whether `f` has this offset and exactly these bytes on disk."""
    state = await api.state(caller, "f")
    stored = api.part(caller, "f").read_bytes()
    return bool(state.body["received"] == offset) and stored == FILE[:offset]


async def test_the_state_of_a_transfer_has_the_fields_of_a_chunk_response(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    assert (await api.state(caller, "f")).body == {
        "Message": "Chunk received",
        "received": HALF,
        "total": len(FILE),
        "complete": False,
    }
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (await api.state(caller, "f")).body == last.body


async def test_an_unknown_transfer_is_not_found(api: UploadApi) -> None:
    answer = await api.state(make_uploader(), "f")
    assert (answer.status, answer.body["code"]) == (404, "transfer_not_found")


async def test_a_part_file_is_named_after_its_file_id(api: UploadApi) -> None:
    assert api.files(await half_sent_caller(api)) == ["progress", "upload_f.part"]


async def test_a_repeated_chunk_gets_the_same_response(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    again = await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE))
    part_of_it = await api.chunk(caller, "f", FILE[10:20], 10, len(FILE))
    assert (again.status, again.body["received"]) == (200, HALF)
    assert (part_of_it.status, part_of_it.body["received"]) == (200, HALF)
    assert await has_offset(api, caller, HALF)


async def test_a_repeated_chunk_with_other_bytes_is_refused(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    answer = await api.chunk(caller, "f", FILE[1 : HALF + 1], 0, len(FILE))
    assert (answer.status, answer.body["code"]) == (400, "unexpected_chunk")
    assert f"byte {HALF} of {len(FILE)} is expected" in answer.body["detail"]
    assert await has_offset(api, caller, HALF)


async def test_the_last_chunk_sent_again_gives_the_same_file(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    again = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (again.status, again.body) == (200, last.body)
    assert len(api.files(caller)) == 1


async def test_after_completion_only_a_repeated_chunk_is_accepted(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    again = await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE))
    other = await api.chunk(caller, "f", b"x" * HALF, 0, len(FILE))
    other_total = await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE) + 1)
    assert again.body == last.body
    assert (other.status, other_total.status) == (400, 400)


@pytest.mark.parametrize(
    ("start", "length", "total"),
    [
        pytest.param(HALF + 1, 10, len(FILE), id="gap"),
        pytest.param(HALF - 1, 10, len(FILE), id="overlap"),
        pytest.param(0, len(FILE), len(FILE), id="overlap from the beginning"),
        pytest.param(HALF, 10, len(FILE) + 1, id="other total"),
        pytest.param(0, HALF, len(FILE) - 1, id="again, with another total"),
    ],
)
async def test_a_chunk_that_does_not_continue_is_refused(api: UploadApi, start: int, length: int, total: int) -> None:
    caller = await half_sent_caller(api)
    answer = await api.chunk(caller, "f", FILE[start : start + length], start, total)
    assert (answer.status, answer.body["code"]) == (400, "unexpected_chunk")
    assert f"byte {HALF} of {len(FILE)} is expected" in answer.body["detail"]
    assert (answer.body["received"], answer.body["total"]) == (HALF, len(FILE))
    assert await has_offset(api, caller, HALF)


@pytest.mark.parametrize("length", [1, 99, 101, HALF], ids=str)
async def test_a_body_shorter_or_longer_than_its_range_is_refused(api: UploadApi, length: int) -> None:
    caller = await half_sent_caller(api)
    answer = await api.chunk(caller, "f", FILE[HALF : HALF + length], HALF, len(FILE), end=HALF + 99)
    assert (answer.status, answer.body["code"]) == (400, "unexpected_chunk")
    assert f"byte {HALF} of {len(FILE)} is expected" in answer.body["detail"]
    assert await has_offset(api, caller, HALF)
    assert (await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))).body["sha256"] == sha256(FILE)


async def test_a_long_body_is_refused_before_it_is_written(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    answer = await api.chunk(caller, "f", bytes(5 << 20), HALF, len(FILE), end=HALF + 99)
    assert answer.status == 400
    assert await has_offset(api, caller, HALF)


async def test_a_first_chunk_with_an_offset_creates_no_transfer(api: UploadApi) -> None:
    caller = make_uploader()
    answer = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert answer.status == 400
    assert f"byte 0 of {len(FILE)} is expected" in answer.body["detail"]
    assert (await api.state(caller, "f")).status == 404
    assert api.files(caller) == []


async def test_a_failed_first_chunk_leaves_no_data(api: UploadApi) -> None:
    caller = make_uploader()
    assert (await api.chunk(caller, "f", FILE[:10], 0, 99, end=49)).status == 400
    refused = await api.send(caller, "f", "bytes 0-1", form(("chunk", b"x", "c")))
    assert (refused.status, refused.body["received"]) == (400, 0)
    assert "byte 0 is expected" in refused.body["detail"]
    assert (await api.state(caller, "f")).status == 404
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))
    assert (await api.chunk(caller, "f", FILE, 0, len(FILE))).body["complete"]


async def test_bytes_after_the_offset_are_truncated(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    with api.part(caller, "f").open("ab") as file:
        file.write(bytes(2 * len(FILE)))  # left by a process that died before it acknowledged them
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (api.folder / caller.tenant_id / last.body["server_filename"]).read_bytes() == FILE


async def test_acknowledged_bytes_that_are_gone_are_reported(api: UploadApi) -> None:
    caller = await half_sent_caller(api)
    os.truncate(api.part(caller, "f"), 10)
    answer = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (answer.status, answer.body["code"]) == (500, "transfer_damaged")


async def test_the_digest_is_right_if_another_process_saw_a_chunk(
    mongo_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = settings_for(mongo_url, tmp_path_factory.mktemp("installers"))
    caller = make_uploader()
    async with serving_uploads(settings) as first_api:
        await first_api.chunk(caller, "f", FILE[:HALF], 0, len(FILE))
    async with serving_uploads(settings) as two:
        last = await two.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert last.body["sha256"] == sha256(FILE)


async def test_a_body_that_ends_early_does_not_change_the_offset(api: UploadApi) -> None:
    caller = await half_sent_caller(api)

    async def broken() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="chunk"\r\n\r\n' + FILE[HALF : HALF + 10]
        raise ConnectionResetError

    headers = {
        "X-File-ID": "f",
        "Content-Range": f"bytes {HALF}-{len(FILE) - 1}/{len(FILE)}",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    with pytest.raises((ClientError, ConnectionResetError)):
        await api.service.call(caller, "POST", "upload_package_version", headers=headers, data=broken())
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert last.body["sha256"] == sha256(FILE)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"--b--\r\n", id="no part"),
        pytest.param(b"no multipart at all", id="garbage"),
        pytest.param(b'--b\r\nContent-Disposition: form-data; name="chunk"\r\n\r\n' + b"x" * 100, id="no end"),
        pytest.param(
            b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n' + b"x" * 100 + b"\r\n--b--\r\n",
            id="another part",
        ),
    ],
)
async def test_a_malformed_body_is_refused(api: UploadApi, body: bytes) -> None:
    caller = await half_sent_caller(api)
    headers = {
        "X-File-ID": "f",
        "Content-Range": f"bytes {HALF}-{HALF + 99}/{len(FILE)}",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    answer = await api.service.call(caller, "POST", "upload_package_version", headers=headers, data=body)
    assert answer.status == 400
    assert f"byte {HALF} of {len(FILE)} is expected" in answer.body["detail"]
    assert (answer.body["received"], answer.body["total"]) == (HALF, len(FILE))
    assert await has_offset(api, caller, HALF)


@pytest.mark.parametrize("content_range", ["bytes */9", "bytes 5-1/9", "bytes 1-2", "chunks 0-1/2"])
async def test_a_malformed_range_is_answered_with_the_expected_byte(api: UploadApi, content_range: str) -> None:
    answer = await api.send(await half_sent_caller(api), "f", content_range, form(("chunk", b"x", "c")))
    assert answer.status == 400
    assert f"byte {HALF} of {len(FILE)} is expected" in answer.body["detail"]
    assert (answer.body["received"], answer.body["total"]) == (HALF, len(FILE))


async def test_a_chunk_may_be_a_field_without_a_file_name(api: UploadApi) -> None:
    caller = make_uploader()
    answer = await api.send(caller, "f", f"bytes 0-{len(FILE) - 1}/{len(FILE)}", form(("chunk", FILE, None)))
    assert answer.body["sha256"] == sha256(FILE)


async def test_other_parts_of_the_body_are_ignored(api: UploadApi) -> None:
    caller = make_uploader()
    body = form(("before", "x", None), ("chunk", FILE, None), ("after", "y", "y.txt"))
    answer = await api.send(caller, "f", f"bytes 0-{len(FILE) - 1}/{len(FILE)}", body)
    assert answer.body["sha256"] == sha256(FILE)


async def test_long_other_parts_of_the_body_are_refused(api: UploadApi) -> None:
    body = form(("before", "x" * 100_000, None), ("chunk", FILE, None))
    answer = await api.send(make_uploader(), "f", f"bytes 0-{len(FILE) - 1}/{len(FILE)}", body)
    assert answer.status == 413


async def test_two_chunks_in_one_body_are_refused(api: UploadApi) -> None:
    caller = make_uploader()
    body = form(("chunk", FILE[:HALF], "a"), ("chunk", FILE[HALF:], "b"))
    answer = await api.send(caller, "f", f"bytes 0-{len(FILE) - 1}/{len(FILE)}", body)
    assert answer.status == 400
    assert api.files(caller) == []


@pytest.mark.parametrize("missing", ["X-File-ID", "Content-Range"])
async def test_both_headers_are_required(api: UploadApi, missing: str) -> None:
    caller = make_uploader()
    headers = {"X-File-ID": "f", "Content-Range": "bytes 0-0/1"}
    del headers[missing]
    answer = await api.service.call(
        caller, "POST", "upload_package_version", headers=headers, data=form(("chunk", b"x", "c"))
    )
    assert answer.status == 400
    assert missing in answer.body["detail"]


@pytest.mark.parametrize("file_id", ["../../x", "a/b", "a\\b", ".", "..", "x" * 300])
async def test_a_file_id_cannot_leave_the_tenants_folder(api: UploadApi, file_id: str) -> None:
    caller = make_uploader()
    assert (await api.chunk(caller, file_id, FILE, 0, len(FILE))).status == 400
    assert (await api.state(caller, file_id)).status == 400
    assert api.files(caller) == []


async def test_one_file_id_in_two_tenants_never_mixes(api: UploadApi) -> None:
    first, second = await half_sent_caller(api), make_uploader()
    assert (await api.state(second, "f")).status == 404
    await api.chunk(second, "f", FILE[::-1], 0, len(FILE))
    last = await api.chunk(first, "f", FILE[HALF:], HALF, len(FILE))
    assert last.body["sha256"] == sha256(FILE)
    assert (await api.state(second, "f")).body["sha256"] == sha256(FILE[::-1])


async def test_two_transfers_of_a_tenant_may_alternate(api: UploadApi) -> None:
    caller = make_uploader()
    await api.chunk(caller, "one", FILE[:HALF], 0, len(FILE))
    await api.chunk(caller, "two", FILE[HALF:], 0, len(FILE))
    first_answer = await api.chunk(caller, "one", FILE[HALF:], HALF, len(FILE))
    two = await api.chunk(caller, "two", FILE[:HALF], HALF, len(FILE))
    assert first_answer.body["sha256"] == sha256(FILE)
    assert two.body["sha256"] == sha256(FILE[HALF:] + FILE[:HALF])


async def test_concurrent_equal_chunks_are_written_once(api: UploadApi) -> None:
    caller = make_uploader()
    answers = await asyncio.gather(*(api.chunk(caller, "f", FILE, 0, len(FILE)) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body["server_filename"] for answer in answers}) == 1
    assert len(api.files(caller)) == 1
    assert await api.usage(caller) == (0, len(FILE))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "the system's own quota"])
async def test_a_transfer_continues_after_a_full_disk(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    caller = await half_sent_caller(api)

    def full(*_: object) -> int:
        raise OSError(number, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        answer = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))
    assert (answer.status, answer.body["code"]) == (500, "storage_full")
    assert await has_offset(api, caller, HALF)
    assert (await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE))).body["sha256"] == sha256(FILE)


async def test_the_service_answers_nothing_without_the_gateways_token(api: UploadApi) -> None:
    address = f"{api.service.address}/acme/upload_package_version"
    async with api.service.session.get(address, headers={"X-File-ID": "f"}) as response:
        assert response.status == 401
