"""Requests that come strangely: raw headers, slow bodies, two at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from yarl import URL

from common.caller import INTERNAL_TOKEN, Caller, sign
from tests.support.factories import KEY
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, settings_for, sha256

FILE = b"installer " * 100
PATIENCE = 20  # seconds after which a test has failed
START = b'--b\r\nContent-Disposition: form-data; name="chunk"\r\n\r\n'
END = b"\r\n--b--\r\n"


@pytest.fixture(scope="module")
async def api(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UploadApi]:
    async with serving_uploads(settings_for(mongo_url, tmp_path_factory.mktemp("installers"))) as served:
        yield served


async def status_of(api: UploadApi, caller: Caller, *lines: bytes) -> int:
    """The status that a chunk of one byte with these header lines is answered with."""
    token = sign(KEY, caller, service="upload_service", operation="upload_package_version")
    body = START + b"x" + END
    head = [
        f"POST /{caller.tenant_id}/upload_package_version HTTP/1.1".encode(),
        b"Host: localhost",
        b"Connection: close",
        f"{INTERNAL_TOKEN}: {token}".encode(),
        b"Content-Type: multipart/form-data; boundary=b",
        f"Content-Length: {len(body)}".encode(),
        *lines,
    ]
    address = URL(api.service.address)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1])


async def test_a_raw_request_of_the_right_form_is_taken(api: UploadApi) -> None:
    lines = b"X-File-ID: f", b"Content-Range: bytes 0-0/1"
    assert await status_of(api, make_uploader(), *lines) == 200


@pytest.mark.parametrize(
    "lines",
    [
        (b"X-File-ID: f", b"X-File-ID: f", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: f", b"Content-Range: bytes 0-0/1", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: f", b"Content-Range: bytes 0-0/1", b"content-range: bytes 0-0/2"),
        (b"X-File-ID:", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: \xff", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: a\x00b", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: a\xc3\xbc", b"Content-Range: bytes 0-0/1"),
        (b"X-File-ID: f", b"Content-Range: bytes \xef\xbc\x90-0/1"),
        (b"X-File-ID: f", b"Content-Range: bytes 0-0/\xff"),
        (b"X-File-ID: f", b"Content-Range: bytes 0-0/1", b"Content-Encoding: gzip"),
    ],
)
async def test_strange_headers_are_refused_and_nothing_is_written(api: UploadApi, lines: tuple[bytes, ...]) -> None:
    caller = make_uploader()
    assert await status_of(api, caller, *lines) == 400
    assert api.files(caller) == []


class Slow:
    """A chunk whose sender stops in the middle of it until it is told to go on."""

    def __init__(self, api: UploadApi, caller: Caller) -> None:
        self._api = api
        self._caller = caller
        self._go_on = asyncio.Event()
        self.sending: asyncio.Task[int] = asyncio.create_task(self._send())

    def go_on(self) -> None:
        self._go_on.set()

    async def _send(self) -> int:
        headers = {
            "X-File-ID": "f",
            "Content-Range": f"bytes 0-{len(FILE) - 1}/{len(FILE)}",
            "Content-Type": "multipart/form-data; boundary=b",
        }
        answer = await self._api.service.call(
            self._caller, "POST", "upload_package_version", headers=headers, data=self._body()
        )
        return answer.status

    async def _body(self) -> AsyncIterator[bytes]:
        yield START + FILE[:10]
        await self._go_on.wait()
        yield FILE[10:] + END


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await happened():  # noqa: ASYNC110  another request makes it happen
            await asyncio.sleep(0.01)


async def test_a_chunk_that_stops_coming_is_given_up(api: UploadApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.bodies.PATIENCE", 0.1)
    caller = make_uploader()
    slow = Slow(api, caller)
    async with asyncio.timeout(PATIENCE):
        assert await slow.sending == 400
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))


async def test_while_one_request_writes_another_of_the_same_transfer_waits(api: UploadApi) -> None:
    caller = make_uploader()
    slow = Slow(api, caller)
    await until(lambda: begun(api, caller))
    waiting = asyncio.create_task(api.chunk(caller, "f", FILE, 0, len(FILE)))
    slow.go_on()
    assert await slow.sending == 200
    answer = await waiting
    assert (answer.status, answer.body["sha256"]) == (200, sha256(FILE))


async def test_a_request_does_not_wait_for_ever_for_another_of_the_same_transfer(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    slow = Slow(api, caller)
    await until(lambda: begun(api, caller))
    monkeypatch.setattr("upload_service.transfers.LEASE_PATIENCE", 0.1)
    answer = await api.chunk(caller, "f", FILE, 0, len(FILE))
    assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable")
    assert answer.headers["Retry-After"] == "1"
    slow.go_on()
    assert await slow.sending == 200


async def begun(api: UploadApi, caller: Caller) -> bool:
    return (await api.state(caller, "f")).status == 200
