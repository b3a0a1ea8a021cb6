"""The contract of every installer storage: a file is written once, completely or not at all."""

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.servers.object_storage import ObjectServer
from tests.support.tables import each
from upload_service.model import InstallerMissing, StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StoredFile
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage

SMALL = bytes(range(256)) * 20
LARGE = os.urandom(12 << 20)  # bytes: more than one part, but not a whole number of parts


@pytest.fixture(params=list(StorageKind))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> InstallerStorage:
    """An empty storage of each kind."""
    if request.param is StorageKind.FOLDER:
        return FolderStorage(tmp_path / "home", PartFiles(tmp_path / "home"))
    server: ObjectServer = request.getfixturevalue("object_server")
    storage = StorageSettings(**server.settings(uuid4().hex)).object_storage
    assert storage is not None
    return S3Storage(storage)


def make_upload(tenant_id: str = "acme", suffix: str = ".exe") -> Upload:
    name = uuid4().hex
    return Upload(tenant_id, "f", name, 10, server_filename=f"{name}{suffix}")


async def put(home: InstallerStorage, tmp_path: Path, content: bytes = SMALL, upload: Upload | None = None) -> Upload:
    """Store a file."""
    upload = upload or make_upload()
    (tmp_path / "home" / upload.tenant_id).mkdir(parents=True, exist_ok=True)
    source = tmp_path / uuid4().hex
    source.write_bytes(content)
    await home.put(upload, source)
    return upload


async def content_of(home: InstallerStorage, upload: Upload, start: int, length: int) -> list[bytes]:
    return [block async for block in home.read(upload, start, length)]


async def files_of(home: InstallerStorage) -> dict[tuple[str, str], StoredFile]:
    return {(file.tenant_id, file.server_filename): file async for file in home.list_files()}


@pytest.mark.parametrize("content", [b"x", SMALL, LARGE], ids=["a byte", "small", "large"])
async def test_a_file_is_read_as_it_was_put(home: InstallerStorage, tmp_path: Path, content: bytes) -> None:
    """Also if several processes put it at once."""
    upload = make_upload()
    await asyncio.gather(*(put(home, tmp_path, content, upload) for _ in range(3)))
    assert await home.size(upload) == len(content)
    assert b"".join(await content_of(home, upload, 0, len(content))) == content


async def test_a_read_returns_the_requested_bytes(home: InstallerStorage, tmp_path: Path) -> None:
    upload = await put(home, tmp_path, LARGE)
    for start, length in ((0, 1), (5 << 20, 3 << 20), (len(LARGE) - 7, 7), (12_345, 9_000_000)):
        blocks = await content_of(home, upload, start, length)
        assert b"".join(blocks) == LARGE[start : start + length], (start, length)
        assert max(map(len, blocks)) <= 1 << 20
    assert await content_of(home, upload, 0, 0) == []


@each(
    "names",
    [("../../pwn", "x"), ("..", "x"), ("", "x"), ("acme", "../x"), ("acme", "/etc/x"), ("acme", ""), ("acme", "x\0")],
    ids=str,
)
async def test_a_name_with_a_path_is_refused(home: InstallerStorage, tmp_path: Path, names: tuple[str, str]) -> None:
    tenant_id, server_filename = names
    with pytest.raises(ValueError, match="not one plain name"):
        await home.put(Upload(tenant_id, "f", "1" * 32, 10, server_filename=server_filename), tmp_path / "source")


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_file_name_is_written_once(home: InstallerStorage, tmp_path: Path, content: bytes) -> None:
    upload = await put(home, tmp_path, content)
    await put(home, tmp_path, bytes(len(content)), upload)
    assert b"".join(await content_of(home, upload, 0, len(content))) == content


async def test_a_put_of_a_stored_file_needs_no_source(home: InstallerStorage, tmp_path: Path) -> None:
    upload = await put(home, tmp_path)
    await home.put(upload, tmp_path / "gone")
    assert await home.size(upload) == len(SMALL)
    with pytest.raises(InstallerMissing):
        await home.put(make_upload(), tmp_path / "gone")


async def test_an_abandoned_read_blocks_no_other(home: InstallerStorage, tmp_path: Path) -> None:
    upload = await put(home, tmp_path, LARGE)
    for _ in range(20):
        blocks = home.read(upload, 0, len(LARGE))
        assert LARGE.startswith(await anext(blocks))
        await blocks.aclose()
    assert b"".join(await content_of(home, upload, 0, len(LARGE))) == LARGE


async def test_a_removed_file_is_gone_and_may_be_removed_again(home: InstallerStorage, tmp_path: Path) -> None:
    upload, other = await put(home, tmp_path), await put(home, tmp_path)
    incomplete = Upload(upload.tenant_id, "f", uuid4().hex, 10)
    for removed in (upload, upload, incomplete):
        await home.remove(removed)
    assert await home.size(upload) is None
    with pytest.raises(InstallerMissing):
        await content_of(home, upload, 0, 10)
    assert await home.size(other) == len(SMALL)


async def test_all_files_are_listed_with_their_age(home: InstallerStorage, tmp_path: Path) -> None:
    assert await files_of(home) == {}
    uploads = [await put(home, tmp_path, upload=make_upload(tenant)) for tenant in ("acme", "acme", "zenith")]
    files = await files_of(home)
    assert files.keys() == {(upload.tenant_id, upload.server_filename) for upload in uploads}
    assert all(abs(file.age) < 60 for file in files.values())


async def test_removing_a_tenant_removes_only_its_files(home: InstallerStorage, tmp_path: Path) -> None:
    gone = [await put(home, tmp_path) for _ in range(3)]
    stored = await put(home, tmp_path, upload=make_upload("acme2"))
    for _ in range(2):
        await home.remove_tenant("acme")
    assert [await home.size(upload) for upload in gone] == [None] * 3
    assert (await files_of(home)).keys() == {("acme2", stored.server_filename)}


@each("tenant_id", ["", ".", "..", "acme/..", "/"])
async def test_nothing_is_removed_for_an_invalid_tenant_id(
    home: InstallerStorage, tmp_path: Path, tenant_id: str
) -> None:
    stored = await put(home, tmp_path)
    with pytest.raises(ValueError, match="not a tenant's id"):
        await home.remove_tenant(tenant_id)
    assert await home.size(stored) == len(SMALL)
