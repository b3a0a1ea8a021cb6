"""Network faults of the object storage: a read is complete or refused, and ends in time."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from common.errors import Unavailable
from common.http.server import serving
from tests.support.servers.certificates import make_certificate
from tests.support.servers.object_storage import KEY_ID, ObjectServer
from tests.support.servers.proxy import Mode, Proxy, run_proxy
from tests.support.wait import until
from upload_service.model import InstallerMissing, Upload
from upload_service.settings import StorageSettings
from upload_service.storage import s3
from upload_service.storage.s3 import S3Storage, s3_request

LARGE = os.urandom(12 << 20)


@dataclass(frozen=True)
class RemoteStorage:
    """An object storage behind a network that a test can break, with a large installer."""

    network: Proxy
    objects: S3Storage
    upload: Upload

    async def until_connected(self) -> None:
        async def connected() -> bool:
            return self.network.connections > 0

        await until(connected)

    async def put(self, source: Path) -> None:
        await self.objects.put(self.upload, source)

    async def start_put(self, source: Path) -> asyncio.Task[None]:
        """Start a put on a slow network. Returns when it is connected."""
        self.network.latency = 0.002
        putting = asyncio.create_task(self.put(source))
        await self.until_connected()
        return putting


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "installer").write_bytes(LARGE)
    return tmp_path / "installer"


@pytest.fixture
async def remote(object_server: ObjectServer) -> AsyncIterator[RemoteStorage]:
    async with run_proxy(f"127.0.0.1:{object_server.port}") as network:
        settings = {**object_server.settings(uuid4().hex), "s3_endpoint": f"http://{network.address}"}
        storage = StorageSettings(**settings).object_storage
        assert storage is not None
        upload = Upload("acme", "f", "u", len(LARGE), server_filename=uuid4().hex, size=len(LARGE))
        yield RemoteStorage(network, S3Storage(storage), upload)


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "TIMEOUT", 0.3)
    monkeypatch.setattr(s3, "BLOCK_TIMEOUT", 0.3)


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library makes no retries, as in the second minute of a read."""
    monkeypatch.setitem(s3.RETRIES, "max_retries", 0)


async def test_a_broken_read_is_resumed(no_retries: None, remote: RemoteStorage, source: Path) -> None:
    await remote.put(source)
    content = bytearray()
    async for block in remote.objects.read(remote.upload, 0, len(LARGE)):
        if len(content) < 3 << 20:
            await remote.network.reset_connections()
        content += block
    assert content == LARGE


async def test_a_stalled_read_ends_with_an_error(remote: RemoteStorage, source: Path, short_timeouts: None) -> None:
    await remote.put(source)
    async with aclosing(remote.objects.read(remote.upload, 0, len(LARGE))) as blocks:
        assert LARGE.startswith(await anext(blocks))
        await remote.network.set_mode(Mode.HALF_OPEN)
        with pytest.raises(Unavailable):
            b"".join([block async for block in blocks])


@pytest.mark.parametrize(
    ("mode", "logged"),
    [
        (Mode.HALF_OPEN, "no response within 0.3 seconds"),
        *(pytest.param(mode, "", marks=pytest.mark.full) for mode in (Mode.BLACK_HOLE, Mode.RESET, Mode.REFUSE)),
    ],
)
async def test_every_call_fails_cleanly_while_the_network_is_broken(
    remote: RemoteStorage, short_timeouts: None, capsys: pytest.CaptureFixture[str], mode: Mode, logged: str
) -> None:
    async with remote.network.fail(mode):
        for call in (
            remote.objects.size(remote.upload),
            remote.objects.remove(remote.upload),
            anext(remote.objects.read(remote.upload, 0, 1)),
            anext(remote.objects.list_files()),
        ):
            with pytest.raises(Unavailable):
                await call
    assert logged in capsys.readouterr().out


@pytest.mark.parametrize("mode", [Mode.RESET, pytest.param(Mode.REFUSE, marks=pytest.mark.full)])
async def test_an_interrupted_put_stores_nothing_and_can_be_repeated(
    remote: RemoteStorage, source: Path, mode: Mode
) -> None:
    putting = await remote.start_put(source)
    async with remote.network.fail(mode):
        with pytest.raises(Unavailable):
            await putting
    remote.network.latency = 0.0
    assert await remote.objects.size(remote.upload) is None
    await remote.put(source)
    assert b"".join([block async for block in remote.objects.read(remote.upload, 0, len(LARGE))]) == LARGE


async def test_a_cancelled_put_leaves_no_readable_object(remote: RemoteStorage, source: Path) -> None:
    putting = await remote.start_put(source)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await remote.objects.size(remote.upload) is None


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
async def test_a_file_that_disappears_during_the_put_is_reported_as_missing(
    remote: RemoteStorage, source: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    source.write_bytes(content)
    stat = Path.stat

    def stat_and_remove(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        result = stat(path, follow_symlinks=follow_symlinks)
        if path == source:
            path.unlink()
        return result

    monkeypatch.setattr(Path, "stat", stat_and_remove)
    with pytest.raises(InstallerMissing):
        await remote.put(source)


@dataclass
class OldProvider:
    """A provider without conditional writes."""

    objects: dict[str, bytes] = field(default_factory=dict)
    refused: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            if "If-None-Match" in request.headers:
                self.refused += 1
                return web.Response(status=501, text="<Error><Code>NotImplemented</Code></Error>")
            self.objects[request.path] = await request.read()
        elif request.path not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT"}
        return web.Response(body=self.objects[request.path], headers=headers)


@asynccontextmanager
async def serving_provider(provider: OldProvider, tls: Path | None = None) -> AsyncIterator[dict[str, Any]]:
    """Serve a provider, with TLS if there is a certificate. Yields the settings for it."""
    app, context = web.Application(), None
    app.router.add_route("*", "/{key:.*}", provider.answer)
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls)
    async with serving(app, "127.0.0.1:0", tls=context) as address:
        yield {**ObjectServer().settings("old"), "s3_endpoint": address}


SMALL = Upload("acme", "f", "u", 3, server_filename="x")


def open_storage(settings: dict[str, Any]) -> S3Storage:
    storage = StorageSettings(**settings).object_storage
    assert storage is not None
    return S3Storage(storage)


async def test_the_certificate_of_a_private_ca_is_trusted(
    no_retries: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")
    async with serving_provider(OldProvider(), certificate) as settings:
        assert await open_storage({**settings, "s3_ca": certificate.read_text()}).size(SMALL) is None
        with pytest.raises(Unavailable):
            await open_storage(settings).size(SMALL)
    assert "InvalidCertificate( UnknownIssuer" in capsys.readouterr().out


class RefusingProvider(OldProvider):
    """A provider that refuses a key, and repeats it in its response."""

    async def answer(self, request: web.Request) -> web.Response:
        body = f"<Error>\n<Code>InvalidAccessKeyId</Code><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>"
        return web.Response(status=403, text=body)


async def test_the_log_names_the_cause_of_an_error_but_no_key(
    no_retries: None, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving_provider(RefusingProvider()) as settings:
        with pytest.raises(Unavailable, match=r"^The object storage does not answer; try again soon\.$"):
            await anext(open_storage(settings).read(SMALL, 0, 3))
    with pytest.raises(Unavailable):
        await open_storage({**settings, "s3_endpoint": "http://127.0.0.1:9"}).size(SMALL)
    log = capsys.readouterr().out
    assert "InvalidAccessKeyId" in log
    assert "403 Forbidden" in log
    assert "Connection refused" in log
    assert KEY_ID not in log


async def test_a_provider_without_conditional_put_is_detected_once(
    no_retries: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = OldProvider()
    async with serving_provider(old) as settings:
        objects = open_storage(settings)
        for name, content in (("a", b"one"), ("b", b"two"), ("a", b"other")):
            (tmp_path / name).write_bytes(content)
            await objects.put(Upload("acme", "f", name, 3, server_filename=name), tmp_path / name)
    assert (list(old.objects.values()), old.refused) == ([b"one", b"two"], 1)
    assert capsys.readouterr().out.count("object_storage_without_conditions") == 1


async def test_a_source_that_cannot_be_read_is_no_fault_of_the_storage() -> None:
    with pytest.raises(OSError, match="Input/output error"):
        async with s3_request("put"):
            raise OSError("Input/output error (os error 5)")
