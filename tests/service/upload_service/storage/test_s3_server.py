"""A real S3 server that is killed in a move, gives few rights, or has a damaged disk; for `make test-s3`."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

from common.errors import Unavailable
from common.mongo import MongoDatabase
from common.work import Worker
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.s3_program import S3Program
from tests.support.services.storage_pair import StoragePair, make_storage_pair
from tests.support.wait import until
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage, InstallerMissing, StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.integrity import IntegrityCheck
from upload_service.storage.migration import Outcome
from upload_service.storage.s3 import S3Storage

LARGE = os.urandom(96 << 20)
RIGHTS = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")


@pytest.fixture
def server(new_object_server: Callable[[], ObjectServer]) -> Iterator[S3Program]:
    server = new_object_server()
    assert isinstance(server, S3Program)
    server.start()
    server.make_bucket()
    yield server
    server.remove()


@pytest.fixture
def own_storages(upload_database: MongoDatabase, tmp_path: Path, server: S3Program) -> StoragePair:
    return make_storage_pair(upload_database, tmp_path, server)


@pytest.mark.parametrize("old", list(StorageKind))
async def test_a_server_killed_in_a_move_loses_nothing(
    own_storages: StoragePair, server: S3Program, old: StorageKind
) -> None:
    (new,) = set(StorageKind) - {old}
    uploads = [await own_storages.add_installer(LARGE, old) for _ in range(2)]
    assert await own_storages.ownership.is_ours(StorageKind.S3)
    written = server.folder if new is StorageKind.S3 else own_storages.root
    before = size_of(written)
    moving = asyncio.create_task(own_storages.move_all(new))
    await until(lambda: asyncio.to_thread(lambda: size_of(written) > before))
    server.kill()
    with pytest.raises(Unavailable):
        await moving
    server.start()
    assert Outcome.FAILED not in await own_storages.move_all(new)
    for upload in uploads:
        await own_storages.assert_only_in(new, upload, LARGE)


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder, which changes meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(path) / name).stat().st_size
    return total


async def test_the_documented_rights_are_enough(
    server: S3Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in server.credentials_with(*RIGHTS).items():
        monkeypatch.setenv(name, text)
    objects, upload = open_without_key(server), make_upload()
    for content in (b"x", LARGE):
        (tmp_path / "source").write_bytes(content)
        await objects.put(upload, tmp_path / "source")
        assert await objects.size(upload) == len(content)
        assert [file.server_filename async for file in objects.list_files()] == [upload.server_filename]
        assert await read(objects, upload, len(content)) == content
        url = await objects.sign_url(upload, "GET")
        assert await asyncio.to_thread(fetch, url) == content
        await objects.remove(upload)
        with pytest.raises(InstallerMissing):
            await read(objects, upload, 1)


async def test_a_missing_right_is_named_in_the_log(
    server: S3Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in server.credentials_with("s3:ListBucket", "s3:GetObject").items():
        monkeypatch.setenv(name, text)
    with pytest.raises(Unavailable):
        await open_without_key(server).remove(make_upload())
    assert "AccessDenied" in capsys.readouterr().out


async def test_a_damaged_disk_of_the_server_stops_no_scrub(own_storages: StoragePair, server: S3Program) -> None:
    content = LARGE[: 8 << 20]
    bad, sound = [await own_storages.add_installer(content, StorageKind.S3) for _ in range(2)]
    for path in server.files_of(bad.server_filename):
        path.write_bytes(bytes(path.stat().st_size))
    store = MongoScrubStore(own_storages.database, interval=3600)
    scrub = Scrub(store, IntegrityCheck(own_storages.backends, own_storages.ownership))
    await Worker(store.queue, scrub.check_leased).run_due()
    damages = [(await own_storages.record(upload))["damage"] for upload in (bad, sound)]
    assert damages in ([Damage.UNREADABLE, Damage.NONE], [Damage.ALTERED, Damage.NONE])


def open_without_key(server: S3Program) -> S3Storage:
    """The storage with the credentials of the environment."""
    settings = server.settings(uuid4().hex)
    del settings["s3_access_key_id"], settings["s3_secret_access_key"]
    storage = StorageSettings(**settings).object_storage
    assert storage is not None
    return S3Storage(storage)


def make_upload() -> Upload:
    return Upload("acme", "f", "u", 0, server_filename=f"{uuid4().hex}.exe")


def fetch(url: str) -> bytes:
    content: bytes = urlopen(url).read()  # noqa: S310  a local server
    return content


async def read(objects: S3Storage, upload: Upload, length: int) -> bytes:
    return b"".join([block async for block in objects.read(upload, 0, length)])
