"""The one-call form: its installer is stored, and its fields are returned."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator

import pytest

from common.auth.internal_tokens import Caller
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.tables import each
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
SIZE = len(FILE)


async def expect_nothing(api: UploadApi, caller: Caller) -> None:
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))


async def test_a_form_with_a_file_is_stored_and_returns_its_fields(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=SIZE)
    answer = await api.store(
        caller, ("b", "1", None), ("file", FILE, "setup.exe"), ("a", "grün", None), ("b", "2", None)
    )
    name, fields = answer.body["server_filename"], [["b", "1"], ["a", "grün"], ["b", "2"]]
    stored = {"fields": fields, "server_filename": name, "sha256": sha256(FILE), "size": SIZE}
    assert (answer.status, answer.body) == (200, stored)
    assert (api.folder / caller.tenant_id / name).read_bytes() == FILE
    assert name.endswith(".exe")
    assert await api.usage(caller) == (0, SIZE)
    claim = (await api.claim(caller, name)).body
    assert (claim["size"], claim["sha256"]) == (SIZE, sha256(FILE))
    assert await api.usage(caller) == (SIZE, 0)


async def test_a_form_without_a_file_returns_its_fields_only(api: UploadApi) -> None:
    caller = make_uploader()
    for empty in [(), (("file", b"", ""),)]:
        answer = await api.store(caller, ("server_filename", "x", None), *empty)
        nothing = dict.fromkeys(("server_filename", "sha256", "size"))
        assert answer.body == {"fields": [["server_filename", "x"]], **nothing}
    await expect_nothing(api, caller)


async def test_a_file_part_without_a_file_name_is_the_installer_too(api: UploadApi) -> None:
    answer = await api.store(make_uploader(), ("file", FILE, None))
    assert (answer.body["sha256"], answer.body["fields"]) == (sha256(FILE), [])


@each(
    ("parts", "status"),
    [
        ([("file", FILE, "a"), ("server_filename", "x", None)], 400),
        ([("file", FILE, "a"), ("installer_url", "x", None)], 400),
        ([("file", FILE, "a"), ("file", FILE, "b")], 400),
        ([("file", b"", "a")], 400),
        ([("file", FILE, "a"), ("name", b"\xff", None)], 400),
        ([("file", FILE, "a"), ("name", "x" * (1 << 20), None), ("more", "x", None)], 413),
    ],
    ids=["a server filename", "an address", "two files", "an empty file", "no UTF-8", "long fields"],
)
async def test_an_invalid_form_is_refused_and_stores_nothing(
    api: UploadApi, parts: list[tuple[str, bytes | str, str | None]], status: int
) -> None:
    caller = make_uploader()
    assert (await api.store(caller, *parts)).status == status
    await expect_nothing(api, caller)


@pytest.mark.parametrize("field", ["server_filename", "installer_url"])
async def test_a_form_with_another_installer_field_stores_no_file(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    async def begin(*_: object) -> None:
        pytest.fail("the file was begun")

    monkeypatch.setattr(MongoUploadStore, "create", begin)
    answer = await api.store(make_uploader(), (field, "x", None), ("file", FILE, "a"))
    assert (answer.status, answer.body["detail"]) == (400, f"Send either `file` or `{field}`, not both.")


async def test_a_file_over_the_quota_is_refused_and_leaves_no_data(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=SIZE - 1)
    answer = await api.store(caller, ("file", FILE, "a"))
    assert (answer.status, answer.body["code"]) == (407, "storage_exceeded")
    await expect_nothing(api, caller)


async def test_a_file_on_a_full_disk_is_refused_and_leaves_no_data(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    caller = make_uploader()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        answer = await api.store(caller, ("file", FILE, "a"))
    assert (answer.status, answer.body["code"]) == (500, "storage_full")
    await expect_nothing(api, caller)


async def test_a_large_file_of_unknown_length_over_the_quota_is_refused(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=3 << 20)

    async def endless() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(8):
            yield bytes(1 << 20)
        yield b"\r\n--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await api.service.call(caller, "POST", "store_installer", headers=headers, data=endless())
    assert answer.status == 407
    await expect_nothing(api, caller)


async def test_concurrent_files_of_unknown_length_never_exceed_the_quota(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=5 * SIZE)
    answers = await asyncio.gather(*(api.store(caller, ("file", FILE, "a")) for _ in range(20)))
    stored = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} <= {200, 407}
    assert 1 <= len(stored) <= 5
    assert (await api.usage(caller), len(api.files(caller))) == ((0, len(stored) * SIZE), len(stored))


async def test_a_form_that_is_not_multipart_is_refused(api: UploadApi) -> None:
    answer = await api.service.call(make_uploader(), "POST", "store_installer", data={"a": "b"})
    assert answer.status == 400
