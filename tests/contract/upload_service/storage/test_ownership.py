"""Every storage has the id of its database, and files without a record are removed from it."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from common.mongo import MongoDatabase, open_database
from tests.support.servers.object_storage import ObjectServer
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.model import Status, StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.integrity import StorageIsNotOurs, StorageOwnership
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.store import MongoFileIndex


@pytest.fixture
def homes(object_server: ObjectServer, tmp_path: Path) -> StorageBackends:
    storage = StorageSettings(**object_server.settings(uuid4().hex)).object_storage
    assert storage is not None
    return storage_backends(FolderStorage(tmp_path, PartFiles(tmp_path)), S3Storage(storage))


@pytest.fixture
async def databases(mongo_url: str) -> AsyncIterator[tuple[MongoDatabase, MongoDatabase]]:
    name = f"test_identity_{uuid4().hex[:8]}"
    async with open_database(mongo_url, name) as first, open_database(mongo_url, f"{name}_other") as second:
        yield first, second
        for database in (first, second):
            await database.client.drop_database(database.name)


@pytest.mark.parametrize("home", list(StorageKind))
async def test_an_empty_storage_is_bound_to_one_database(
    homes: StorageBackends, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: StorageKind
) -> None:
    owner, other = (StorageOwnership(MongoFileIndex(database), homes, tmp_path) for database in databases)
    for _ in range(2):
        assert await owner.is_ours(home)
        await owner.check(home)
        assert not await other.is_ours(home)
        with pytest.raises(StorageIsNotOurs):
            await other.check(home)
    assert [path.name for path in (tmp_path / ".storage").iterdir()] == (["id"] if home is StorageKind.FOLDER else [])
    assert [file async for file in homes.get(home).list_files()] == []


@pytest.mark.parametrize("home", list(StorageKind))
async def test_an_empty_storage_in_place_of_the_installers_is_not_ours(
    homes: StorageBackends, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: StorageKind
) -> None:
    record = {"tenant_id": "acme", "upload_id": "0" * 32, "status": Status.LINKED.value, "home": home.value}
    await databases[0]["uploads"].insert_one(record)
    owner = StorageOwnership(MongoFileIndex(databases[0]), homes, tmp_path)
    assert not await owner.is_ours(home)
    with pytest.raises(StorageIsNotOurs):
        await owner.check(home)


@pytest.mark.parametrize("home", list(StorageKind))
async def test_files_without_a_record_are_removed_from_every_storage(
    homes: StorageBackends, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: StorageKind
) -> None:
    folder, file_index = FolderStorage(tmp_path, PartFiles(tmp_path)), MongoFileIndex(databases[0])
    identity = StorageOwnership(file_index, homes, tmp_path)
    assert await identity.is_ours(home)
    (tmp_path / "acme").mkdir()
    recorded, orphan = [Upload("acme", "f", name, 1, server_filename=f"{name}.msi") for name in ("0" * 32, "1" * 32)]
    for upload in (recorded, orphan):
        source = tmp_path / upload.upload_id
        source.write_bytes(b"x")
        await homes.get(home).put(upload, source)
    record = {"server_filename": recorded.server_filename, "status": Status.LINKED.value, "home": home.value}
    await databases[0]["uploads"].insert_one({"tenant_id": "acme", "upload_id": recorded.upload_id, **record})
    await OrphanCollector(file_index, homes, folder, tmp_path, identity, age=-60).collect()
    assert [file.server_filename async for file in homes.get(home).list_files()] == [recorded.server_filename]
