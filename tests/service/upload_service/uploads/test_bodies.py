"""Unusual requests: raw headers, slow bodies, concurrent bodies."""

import asyncio

import pytest
from yarl import URL

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from tests.support.factories import KEY
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.services.replicas import FILE, Replicas
from tests.support.services.upload import UploadApi, make_uploader
from tests.support.tables import each
from tests.support.wait import TIMEOUT

BODY = b'--b\r\nContent-Disposition: form-data; name="chunk"\r\n\r\nx\r\n--b--\r\n'


async def status_of(api: UploadApi, caller: Caller, *lines: bytes) -> int:
    """The status of the response to a chunk of one byte with these header lines."""
    token = sign(KEY, caller, service="upload_service", operation="upload_package_version")
    head = [
        f"POST /{caller.tenant_id}/upload_package_version HTTP/1.1".encode(),
        b"Host: localhost",
        b"Connection: close",
        f"{INTERNAL_TOKEN}: {token}".encode(),
        b"Content-Type: multipart/form-data; boundary=b",
        f"Content-Length: {len(BODY)}".encode(),
        *lines,
    ]
    address = URL(api.service.address)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"\r\n".join(head) + b"\r\n\r\n" + BODY)
    async with asyncio.timeout(TIMEOUT):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1])


@each(
    ("lines", "status"),
    [
        ((b"X-File-ID: f", b"Content-Range: bytes 0-0/1"), 200),
        ((b"X-File-ID: f", b"X-File-ID: f", b"Content-Range: bytes 0-0/1"), 400),
        ((b"X-File-ID: f", b"Content-Range: bytes 0-0/1", b"content-range: bytes 0-0/2"), 400),
        ((b"X-File-ID: \xff", b"Content-Range: bytes 0-0/1"), 400),
        ((b"X-File-ID: a\x00b", b"Content-Range: bytes 0-0/1"), 400),
        ((b"X-File-ID: f", b"Content-Range: bytes \xef\xbc\x90-0/1"), 400),
        ((b"X-File-ID: f", b"Content-Range: bytes 0-0/1", b"Content-Encoding: gzip"), 400),
    ],
)
async def test_a_chunk_with_invalid_headers_is_refused_and_writes_nothing(
    api: UploadApi, lines: tuple[bytes, ...], status: int
) -> None:
    caller = make_uploader()
    assert await status_of(api, caller, *lines) == status
    assert len(api.files(caller)) == (status == 200)


async def test_a_stalled_chunk_is_aborted(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.bodies.TIMEOUT", 0.1)
    caller = make_uploader()
    chunk = StalledChunk(replicas.first, caller, "f", FILE, 0, len(FILE))
    async with asyncio.timeout(TIMEOUT):
        assert (await chunk.answer()).status == 400
    await replicas.expect_nothing(caller)


async def test_a_chunk_waits_while_another_request_writes_its_transfer(replicas: Replicas) -> None:
    caller = make_uploader()
    chunk = await replicas.stall_chunk(caller, 0, len(FILE))
    waiting = asyncio.create_task(replicas.send(caller, 0, len(FILE)))
    assert (await chunk.resume()).status == 200
    replicas.expect_file(caller, await waiting)


async def test_a_chunk_does_not_wait_forever_for_another_request(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    chunk = await replicas.stall_chunk(caller, 0, len(FILE))
    monkeypatch.setattr("upload_service.uploads.service.LEASE_TIMEOUT", 0.1)
    answer = await replicas.send(caller, 0, len(FILE))
    assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable")
    assert answer.headers["Retry-After"] == "1"
    assert (await chunk.resume()).status == 200
