"""Every kind of storage has the id of its database, and loses files that the database does not know."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from common.mongo import MongoDatabase, open_database
from tests.support.servers.object_storage import ObjectServer
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.maintenance.store import MongoFileIndex
from upload_service.model import Status, StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.ownership import StorageIsNotOurs, StorageOwnership
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.uploads.part_files import PartFiles


@pytest.fixture
def homes(object_server: ObjectServer, tmp_path: Path) -> StorageBackends:
    storage = StorageSettings(**object_server.settings(uuid4().hex)).object_storage
    assert storage is not None
    return storage_backends(FolderStorage(tmp_path, PartFiles(tmp_path)), S3Storage(storage))


@pytest.fixture
async def databases(mongo_url: str) -> AsyncIterator[tuple[MongoDatabase, MongoDatabase]]:
    name = f"test_identity_{uuid4().hex[:8]}"
    async with open_database(mongo_url, name) as ours, open_database(mongo_url, f"{name}_other") as theirs:
        yield ours, theirs
        for database in (ours, theirs):
            await database.client.drop_database(database.name)


@pytest.mark.parametrize("home", list(StorageKind))
async def test_an_empty_storage_is_bound_to_one_database(
    homes: StorageBackends, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: StorageKind
) -> None:
    ours, theirs = (StorageOwnership(MongoFileIndex(database), homes, tmp_path) for database in databases)
    for _ in range(2):
        assert await ours.is_ours(home)
        await ours.check(home)
        assert not await theirs.is_ours(home)
        with pytest.raises(StorageIsNotOurs):
            await theirs.check(home)
    assert [path.name for path in (tmp_path / ".storage").iterdir()] == (["id"] if home is StorageKind.FOLDER else [])
    assert [kept async for kept in homes.get(home).list_files()] == []


@pytest.mark.parametrize("home", list(StorageKind))
async def test_files_without_a_record_are_removed_from_every_storage(
    homes: StorageBackends, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: StorageKind
) -> None:
    folder, known = FolderStorage(tmp_path, PartFiles(tmp_path)), MongoFileIndex(databases[0])
    identity = StorageOwnership(known, homes, tmp_path)
    assert await identity.is_ours(home)
    (tmp_path / "acme").mkdir()
    kept, orphan = [Upload("acme", "f", name, 1, server_filename=f"{name}.msi") for name in ("0" * 32, "1" * 32)]
    for upload in (kept, orphan):
        source = tmp_path / upload.upload_id
        source.write_bytes(b"x")
        await homes.get(home).put(upload, source)
    record = {"server_filename": kept.server_filename, "status": Status.LINKED.value, "home": home.value}
    await databases[0]["uploads"].insert_one({"tenant_id": "acme", "upload_id": kept.upload_id, **record})
    await OrphanCollector(known, homes, folder, tmp_path, identity, age=-60).collect()
    assert [found.server_filename async for found in homes.get(home).list_files()] == [kept.server_filename]
